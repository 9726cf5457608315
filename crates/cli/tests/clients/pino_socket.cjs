// Sends records by pino over TCP: ADDRESS RECORDS (see unacknowledged.rs). It ends when it is killed.

const pino = require("pino");
const connect = require("pino-socket");

const BATCH = 500;

async function main(address, records) {
    const [host, port] = address.split(":");
    const stream = await connect({
        address: host,
        port: Number(port),
        mode: "tcp",
        reconnect: true,
        recovery: true,
        recoveryQueueMaxSize: 1 << 28,
        backoffStrategy: { name: "exponential", initialDelay: 50, maxDelay: 200 },
    });
    const logger = pino(stream);
    for (let first = 0; first < records; first += BATCH) {
        for (let n = first; n < Math.min(first + BATCH, records); n++) logger.info({ n }, `record ${n}`);
        // What is lost is known when the next records fail.
        await new Promise((resolve) => setTimeout(resolve, 20));
    }
    setInterval(() => {}, 1000);
}

main(process.argv[2], Number(process.argv[3]));
