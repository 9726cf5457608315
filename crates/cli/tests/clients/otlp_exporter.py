"""Sends records by OpenTelemetry's OTLP exporter, protobuf and gzip: ADDRESS RECORDS TOLD (see main.rs)."""

import sys
import time

from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource

BATCH = 500


class Gathered(LogRecordExporter):
    """Keeps what the SDK makes of records."""

    def __init__(self):
        self.records = []

    def export(self, batch):
        self.records.extend(batch)
        return LogRecordExportResult.SUCCESS

    def shutdown(self):
        pass

    def force_flush(self, timeout_millis=0):
        return True


def main(address, records, told):
    gathered = Gathered()
    provider = LoggerProvider(resource=Resource.create({"service.name": "client"}))
    provider.add_log_record_processor(SimpleLogRecordProcessor(gathered))
    logger = provider.get_logger("driver", "1.0")
    exporter = OTLPLogExporter(endpoint=f"http://{address}/v1/logs", compression=Compression.Gzip)
    with open(told, "w", buffering=1) as file:
        for first in range(0, records, BATCH):
            end = min(first + BATCH, records)
            gathered.records = []
            for n in range(first, end):
                logger.emit(
                    timestamp=time.time_ns(),
                    severity_number=SeverityNumber.INFO,
                    body=f"record {n}",
                    attributes={"n": n},
                )
            assert len(gathered.records) == end - first
            while exporter.export(gathered.records) != LogRecordExportResult.SUCCESS:
                print(f"{first}: again", file=sys.stderr)
                time.sleep(0.2)
            file.write(f"{first} {end}\n")


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
