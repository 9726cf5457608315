"""Sends records by python-logstash-async over TCP: ADDRESS RECORDS (see unacknowledged.rs). It ends when it is killed."""

import logging
import sys
import time

from logstash_async.constants import constants
from logstash_async.handler import AsynchronousLogstashHandler

# With its own pauses 100,000 records take hours: each batch is a connection.
constants.QUEUE_CHECK_INTERVAL = 0.05
constants.QUEUED_EVENTS_FLUSH_INTERVAL = 0.2
constants.QUEUED_EVENTS_FLUSH_COUNT = 1000
constants.QUEUED_EVENTS_BATCH_SIZE = 1000
# A daemon that was killed takes nothing any more.
constants.SOCKET_CLOSE_WAIT_TIMEOUT = 1.0
BATCH = 500


def main(address, records):
    host, port = address.split(":")
    handler = AsynchronousLogstashHandler(host, int(port), database_path=None)
    logger = logging.getLogger("client")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    for n in range(records):
        logger.info("record %d", n, extra={"n": n})
        if n % BATCH == 0:
            time.sleep(0.02)
    while True:
        time.sleep(1)


main(sys.argv[1], int(sys.argv[2]))
