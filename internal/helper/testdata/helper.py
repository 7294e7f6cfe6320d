#!/usr/bin/env python3
"""Decides about one node.

What is known of the node comes as JSON on standard input, the decision goes as
JSON to standard output. Everything else belongs on standard error, which ends
in the log. An exception ends with exit code 1: nothing is done to the node, and
it is asked about again later.
"""

import json
import os
import sys

BROKERS = "nats://broker.example.net:4222"


def configuration(identity):
    """The lines of the node's server.conf; every value is a string."""
    return {
        "identity": identity,
        "loglevel": "info",
        "plugin.choria.middleware_hosts": BROKERS,
        "plugin.choria.server.provision": "false",
        "plugin.security.provider": "choria",
    }


def decide(node):
    identity = node["identity"]
    if not identity.endswith(".example.net"):
        return {"defer": True, "msg": f"{identity} is not one of ours"}
    if identity.startswith("retired"):
        return {"shutdown": True, "msg": f"{identity} is retired"}

    facts = json.loads(node["inventory"] or "{}").get("facts", {})
    return {
        "configuration": configuration(identity),
        "server_claims": {
            "ou": facts.get("ou", "choria"),
            "permissions": {"submission": True},
        },
        "action_policies": {"rpcutil.policy": "policy default allow\n"},
    }


if __name__ == "__main__":
    job = os.environ.get("PROVCTL_JOB", "none")
    node = json.load(sys.stdin)
    print(f"job {job}: deciding about {node['identity']}", file=sys.stderr)
    json.dump(decide(node), sys.stdout)
