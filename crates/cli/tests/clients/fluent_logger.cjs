// Sends records by @fluent-org/logger, with acknowledgements, in each of its modes: ADDRESS RECORDS TOLD (see main.rs).

const fs = require("node:fs");
const { EventTime, FluentClient } = require("@fluent-org/logger");

const BATCH = 500;
const MODES = ["Message", "Forward", "PackedForward", "CompressedPackedForward"];

async function main(address, records, told) {
    const [host, port] = address.split(":");
    const clients = MODES.map(
        (eventMode) => new FluentClient("app", { eventMode, ack: { ackTimeout: 5000 }, socket: { host, port: Number(port) } }),
    );
    const file = fs.openSync(told, "w");
    for (let first = 0; first < records; first += BATCH) {
        const end = Math.min(first + BATCH, records);
        const client = clients[(first / BATCH) % clients.length];
        let left = Array.from({ length: end - first }, (_, index) => first + index);
        for (;;) {
            const sent = left.map((n) => client.emit({ n, message: `record ${n}` }, new EventTime(1600000000 + n, n)));
            const results = await Promise.allSettled(sent);
            left = left.filter((_, index) => results[index].status === "rejected");
            if (left.length === 0) break;
            console.error(`${first}: ${left.length} were not acknowledged: again`);
            await new Promise((resolve) => setTimeout(resolve, 200));
        }
        fs.writeSync(file, `${first} ${end}\n`);
    }
    await Promise.all(clients.map((client) => client.disconnect()));
}

main(process.argv[2], Number(process.argv[3]), process.argv[4]).catch((error) => {
    console.error(error);
    process.exit(1);
});
