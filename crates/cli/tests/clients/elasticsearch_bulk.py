"""Sends records by the bulk helper of Elasticsearch's client: ADDRESS RECORDS TOLD (see main.rs)."""

import sys
import time

from elasticsearch import ApiError, Elasticsearch, TransportError, helpers

BATCH = 500


def main(address, records, told):
    client = Elasticsearch(f"http://{address}", api_key=None)
    assert client.info()["version"]["number"].startswith("8."), "the handshake"
    assert client.ping()
    with open(told, "w", buffering=1) as file:
        for first in range(0, records, BATCH):
            end = min(first + BATCH, records)
            while True:
                documents = ({"_index": "logs", "n": n, "message": f"record {n}"} for n in range(first, end))
                try:
                    count, _ = helpers.bulk(client, documents, chunk_size=BATCH)
                    assert count == end - first, count
                    break
                except (ApiError, TransportError) as error:
                    print(f"{first}: {error}: again", file=sys.stderr)
                    time.sleep(0.2)
            file.write(f"{first} {end}\n")


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
