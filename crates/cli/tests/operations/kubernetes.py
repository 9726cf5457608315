"""Checks dist/kubernetes/logd.yaml beyond its schema: that its parts fit together, and that logd takes its arguments.

    python3 kubernetes.py target/release/ringwise

Needs PyYAML. It starts logd with the arguments of the manifest, on other addresses and in another directory, and asks
for the path of each probe.
"""

import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request

import yaml

MANIFEST = pathlib.Path(__file__).resolve().parents[4] / "dist/kubernetes/logd.yaml"
ADDRESS = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.1"  # nobody else listens there
SEAL = 10  # seconds for what a daemon does after its drain


def expect(is_right, what):
    if not is_right:
        sys.exit(f"{MANIFEST.name}: {what}")


def check_parts(objects):
    """Checks that selectors, ports and times fit together; returns the container."""
    stateful = objects["StatefulSet", "logd"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    pod = stateful["template"]["spec"]
    [container] = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    selectors = [stateful["selector"], objects["PodDisruptionBudget", "logd"]["spec"]["selector"]]
    selectors += [spread["labelSelector"] for spread in pod["topologySpreadConstraints"]]
    selectors = [selector["matchLabels"] for selector in selectors]
    for (kind, name), definition in objects.items():
        if kind == "Service":
            selectors.append(definition["spec"]["selector"])
            for port in definition["spec"]["ports"]:
                expect(ports.get(port["targetPort"]) == port["port"], f"{name}: no container has the port {port}")
    expect(all(selector == labels for selector in selectors), f"{selectors} do not all select {labels}")
    expect(("Service", stateful["serviceName"]) in objects, "serviceName is no Service")
    listened = {int(port) for port in re.findall(r"=0\.0\.0\.0:(\d+)", " ".join(container["args"]))}
    expect(listened == set(ports.values()), f"logd listens on {listened}, and the ports are {ports}")
    [drain] = [int(argument[8:-1]) for argument in container["args"] if argument.startswith("--drain=")]
    needed = container["lifecycle"]["preStop"]["sleep"]["seconds"] + 3 * drain + SEAL
    grace = pod["terminationGracePeriodSeconds"]
    expect(grace >= needed, f"the end may take {needed} s, and has {grace} s")
    claims = {claim["metadata"]["name"] for claim in stateful["volumeClaimTemplates"]}
    expect(claims == {mount["name"] for mount in container["volumeMounts"]}, "volumes and mounts differ")
    return container, ports


def ask_probes(ringwise, container, ports):
    """Starts logd as the manifest does, and asks what the probes ask."""
    with tempfile.TemporaryDirectory(prefix="kubernetes-") as directory:
        [data] = [mount["mountPath"] for mount in container["volumeMounts"]]
        moved = lambda word: word.replace("0.0.0.0", ADDRESS).replace(f"={data}/", f"={directory}/")
        arguments = [moved(word) for word in container["args"]]
        daemon = subprocess.Popen([ringwise, *arguments], stdout=subprocess.PIPE, text=True)
        try:
            while not (line := daemon.stdout.readline()).startswith("status page"):
                expect(line, "logd does not start with these arguments")
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                asked = container[probe]["httpGet"]
                url = f"http://{ADDRESS}:{ports[asked['port']]}{asked['path']}"
                expect(urllib.request.urlopen(url, timeout=5).status == 200, f"{probe}: {url}")
            daemon.send_signal(signal.SIGTERM)
            expect(daemon.wait(SEAL) == 0, "logd does not end well")
        finally:
            daemon.kill()
            daemon.wait()


def main(ringwise):
    documents = list(yaml.safe_load_all(MANIFEST.read_text()))
    objects = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    container, ports = check_parts(objects)
    ask_probes(ringwise, container, ports)
    print(f"{len(documents)} objects fit together, and logd starts with these arguments")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: kubernetes.py RINGWISE")
    main(sys.argv[1])
