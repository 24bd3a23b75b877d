"""Functions that sweeps of the tests run: quick ones, slow ones, and hostile ones."""

import ctypes
import math
import os
import random
import signal
import sys
import time


def product(parameters, seed):
    """Quick and honest."""
    return {"product": parameters["a"] * parameters["b"], "seeded": seed % 1000}


def lawful(parameters, seed):
    """Breaks `fifo` for large `a`."""
    broken = parameters["a"] > 2
    return {
        "metrics": {"a": parameters["a"]},
        "verdicts": {"fifo": "violated" if broken else "holds", "drain": "holds"},
        "witnesses": {"fifo": {"sequence": 3}} if broken else {},
    }


def as_told(parameters, seed):
    """Holds, but for one run."""
    verdict = parameters["but"] if parameters["a"] == 2 else "holds"
    return {"metrics": {"a": parameters["a"]}, "verdicts": {"fifo": verdict}}


def slow(parameters, seed):
    """Takes its time on the processor."""
    end = time.process_time() + parameters.get("seconds", 0.05)
    while time.process_time() < end:
        pass
    return {"seeded": seed % 1000}


def waiting(parameters, seed):
    """Takes its time off the processor."""
    time.sleep(parameters["seconds"])
    return {"seeded": seed % 1000}


def hostile(parameters, seed):
    """Does to its process what `how` says."""
    how = parameters["how"]
    if how == "raise":
        raise ValueError("out of range")
    if how == "no UTF-8":
        raise ValueError("\udcff")
    if how == "exit":
        sys.exit(3)
    if how == "_exit":
        os._exit(4)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "loop":
        while True:
            pass
    if how == "lua loop":
        from lupa import lua51

        lua51.LuaRuntime().execute("while true do end")
    if how == "memory":
        return {"bytes": len(bytearray(6 * 2**30))}
    if how == "close":
        os.closerange(3, 1000)
        time.sleep(3600)
    if how == "garbage":
        for descriptor in range(3, 100):
            try:
                os.write(descriptor, b"\0" * 7 + b"\x08spoiled!")
            except OSError:
                continue
    if how == "child":
        if os.fork() == 0:
            time.sleep(3600)
        os._exit(0)
    if how == "result":
        return {"it": object()}
    return {"fine": 1.0, "\udcff": 2.0}


def moody(parameters, seed):
    """Fails as long as a file stands there."""
    if parameters["a"] == 2 and os.path.exists(parameters["flag"]):
        raise RuntimeError("moody")
    return {"a": parameters["a"]}


def station(parameters, seed):
    """A queueing station: its latency grows with its load."""
    load = parameters.get("rate", 20) / (40 * parameters["servers"] * parameters.get("speed", 1))
    if load >= 1:
        return {"ms": 1e6 + seed % 10}
    return {"ms": 10 / (1 - load) * (1 + seed % 10 / 1000)}


def stalling(parameters, seed):
    """A station of which one run in ten stalls."""
    stalls = 3000.0 if seed % 10 == 3 and parameters["servers"] == 2 else 0.0
    return {"ms": station(parameters, seed)["ms"] + stalls}


def failing(parameters, seed):
    """Fails at one of three rates, and judges the others."""
    if parameters.get("a") == 2 or parameters.get("rate", 0) > 50:
        raise KeyError("ratte")
    return {"metrics": {"ms": 1.0 + seed % 7}, "verdicts": {"fifo": "holds"}}


def rated(parameters, seed):
    """A station that needs to be told its rate."""
    return station({**parameters, "rate": parameters["rate"]}, seed)


def doomed(parameters, seed):
    """Where `a` is 2, or not given, it comes to the end that `how` says."""
    how = parameters["how"] if parameters.get("a", 2) == 2 else ""
    if how == "error":
        raise KeyError("ratte")
    if how == "_exit":
        os._exit(4)
    verdict = "violated" if how == "violated" else "holds"
    return {"metrics": {"ms": 10.0 * parameters.get("a", 2) + seed % 7 / 100}, "verdicts": {"fifo": verdict}}


def reported(parameters, seed):
    """Something of everything that a report shows."""
    if parameters["rate"] == 50 and parameters["mode"] == "y":
        raise ValueError("too fast")
    latency = 20.0 * parameters["rate"] + seed % 10
    broken = parameters["rate"] == 30 and parameters["mode"] == "x"
    return {"metrics": {"mean_ms": latency}, "verdicts": {"fifo": "violated" if broken else "holds"}}


def struck(parameters, seed):
    """Breaks `fifo` when more than `most` faults strike; how many do is drawn elsewhere."""
    faults = len(parameters["faults"].split())
    verdict = "violated" if faults > parameters["most"] else "holds"
    return {"metrics": {"faults": faults, "seeded": seed % 1000}, "verdicts": {"fifo": verdict}}


def noisy(parameters, seed):
    """A mean of 100, within `spread`."""
    return {"ms": 100 + parameters["spread"] * (seed % 1000 / 500 - 1)}


def patricide(parameters, seed):
    """Kills the worker that it belongs to, once; and its own process another time."""
    if parameters["a"] == 2 and not os.path.exists(parameters["flag"]):
        with open(parameters["flag"], "w"):
            os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    if parameters["a"] == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"a": parameters["a"]}


def mixed(parameters, seed):
    """Metrics that make reports difficult."""
    a = parameters["a"]
    if parameters["how"] == "constant":
        return {"lost": 0.0, "delivered": 10.0}
    if parameters["how"] == "alone":
        return {f"m{a}": 1.0 * a}
    odd = {"nan": float("nan"), "inf": float("inf"), "huge": 1e300 * (1 + seed % 3), "ms.mean_ms": -5.0}
    return odd | ({"some": a} if a > 1 else {})


def odd_at_times(parameters, seed):
    """10, and and where the seed is even what `how` says instead of 10."""
    return {"x": float(parameters["how"]) if parameters["how"] != "1" and seed % 2 == 0 else 10.0 + seed % 7 / 100}


def at_times_lawful(parameters, seed):
    """Judges nothing in one run."""
    return {"metrics": {"x": 1}, "verdicts": {} if parameters["a"] == parameters["silent"] else {"fifo": "holds"}}


def tuned(parameters, seed):
    """Latency with its least at 7 producers and a linger of 5 under `lua`, noisier in few seconds; `watch` breaks a
    law."""
    noise = random.Random(f"{seed}").gauss(0, 0.05) / math.sqrt(parameters.get("seconds", 1.0))
    away = (parameters["producers"] - 7) ** 2 + math.log(parameters["linger"] / 5) ** 2
    ms = 10 + away + noise
    if parameters["producers"] == parameters.get("fails"):
        raise ValueError("out of range")
    time.sleep(parameters.get("waits_s", 0.0))
    is_flawed = parameters["cure"] == "watch"
    metrics = {"ms": ms - 3 * is_flawed, "p99_ms": 3 * ms + parameters.get("p99_more", 0)}
    return {"metrics": metrics, "verdicts": {"fifo": "violated" if is_flawed else "holds"}}
