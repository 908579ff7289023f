#!/usr/bin/env python3
"""A Runyard worker that needs nothing but Python. It runs one kind of its own, `py-upper`: {"text": ..., "seconds": ...}.
Usage: RUNYARD_WORKER_TOKEN=... python3 worker.py http://127.0.0.1:7340"""
import json, os, sys, threading, time, urllib.error, urllib.request

SERVER = sys.argv[1].rstrip("/")
ABOUT = {"name": "python", "cpus": 1, "ramMb": 256, "kinds": ["py-upper"], "maxParallel": 4}


def call(path, key, body):
    headers = {"authorization": "Bearer " + key, "content-type": "application/json"}
    request = urllib.request.Request(SERVER + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


class Run(threading.Thread):
    """One attempt of one task."""

    def __init__(self, order):
        super().__init__(daemon=True)
        self.order, self.stop, self.outcome, self.is_told = order, threading.Event(), None, False
        self.lease = {name: order[name] for name in ("task", "attempt", "token")}
        self.start()

    def run(self):
        payload = self.order.get("payload") or {}
        if self.stop.wait(payload.get("seconds", 0)):
            self.outcome = {"state": "stopped"}
        elif "text" not in payload:
            self.outcome = {"state": "failed", "class": "permanent", "message": "payload.text is missing"}
        else:
            self.outcome = {"state": "completed", "result": {"text": payload["text"].upper()}}


me = call("/v1/workers", os.environ["RUNYARD_WORKER_TOKEN"], ABOUT)
runs, strays = {}, []  # by (task, attempt); leases that are to stop and are not here
while True:
    here, answered = list(runs.items()), strays[:]
    ended = [(key, run) for key, run in here if run.outcome]
    done = [dict(run.lease, outcome=run.outcome) for _, run in ended]
    letter = {"session": me["session"], "held": [run.lease for _, run in here], "waitMs": 200 if runs else 10000,
              "started": [run.lease for _, run in here if not run.is_told],
              "done": done + [dict(lease, outcome={"state": "stopped"}) for lease in answered]}
    try:
        answer = call(f"/v1/workers/{me['id']}/sync", me["key"], letter)
    except urllib.error.HTTPError as error:
        if error.code < 500:
            sys.exit(f"the server refuses: {error.code} {error.read().decode()}")
        time.sleep(1)
        continue
    except OSError:  # no answer: everything is said again
        time.sleep(1)
        continue
    for key, run in here:  # an answer means that all of the letter is stored
        run.is_told = True
    for key, _ in ended:
        del runs[key]
    strays = [lease for lease in strays if lease not in answered]
    for order in answer["start"]:
        if (order["task"], order["attempt"]) not in runs:
            runs[order["task"], order["attempt"]] = Run(order)
    for order in answer["stop"]:
        run = runs.get((order["task"], order["attempt"]))
        run.stop.set() if run else strays.append({name: order[name] for name in ("task", "attempt", "token")})
    for gone in answer["revoked"] + answer["refused"]:
        run = runs.pop((gone["task"], gone["attempt"]), None)
        run and run.stop.set()
