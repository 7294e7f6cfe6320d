#!/usr/bin/env python3
"""A helper with the faults that helpers have; the argument says which."""

import json
import sys


def crash():
    raise RuntimeError("no answer from the inventory, token=hunter2 " + "\x1b[2J" + "x" * 100_000)


def chatty():
    print("looking at", json.load(sys.stdin)["identity"])
    json.dump({"defer": True}, sys.stdout)


def silent():
    json.load(sys.stdin)


{"crash": crash, "chatty": chatty, "silent": silent}[sys.argv[1]]()
