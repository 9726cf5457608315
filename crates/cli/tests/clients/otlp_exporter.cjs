// Sends records by OpenTelemetry's OTLP exporter, as JSON: ADDRESS RECORDS TOLD (see main.rs).

const fs = require("node:fs");
const { OTLPLogExporter } = require("@opentelemetry/exporter-logs-otlp-http");
const { LoggerProvider, SimpleLogRecordProcessor } = require("@opentelemetry/sdk-logs");

const BATCH = 500;
const SUCCESS = 0;

async function main(address, records, told) {
    // What the SDK makes of records.
    let gathered = [];
    const keeper = {
        export(batch, done) {
            gathered.push(...batch);
            done({ code: SUCCESS });
        },
        shutdown: async () => {},
        forceFlush: async () => {},
    };
    const provider = new LoggerProvider({ processors: [new SimpleLogRecordProcessor({ exporter: keeper })] });
    const logger = provider.getLogger("driver", "1.0");
    const exporter = new OTLPLogExporter({ url: `http://${address}/v1/logs` });
    const send = () => new Promise((resolve) => exporter.export(gathered, resolve));
    const file = fs.openSync(told, "w");
    for (let first = 0; first < records; first += BATCH) {
        const end = Math.min(first + BATCH, records);
        gathered = [];
        for (let n = first; n < end; n++) {
            logger.emit({ severityNumber: 9, body: `record ${n}`, attributes: { n } });
        }
        while (gathered.length < end - first) {
            await new Promise((resolve) => setTimeout(resolve, 1));
        }
        for (;;) {
            const result = await send();
            if (result.code === SUCCESS) break;
            console.error(`${first}: ${result.error?.message}: again`);
            await new Promise((resolve) => setTimeout(resolve, 200));
        }
        fs.writeSync(file, `${first} ${end}\n`);
    }
}

main(process.argv[2], Number(process.argv[3]), process.argv[4]).catch((error) => {
    console.error(error);
    process.exit(1);
});
