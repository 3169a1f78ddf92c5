"""What a locked child process does: run a program, or generated code whose functions are asked for, or a test of them.

    program   a program with its own input and output; the caller compares what it prints
    code      generated code; then it answers what the test asks of its functions (stages/score/peer.py)
    test      a test, in whose process no generated code runs; it says what came out

`python untrusted.py FD` reads the request, JSON, from the file descriptor FD, locks itself, and only then compiles
anything. Only the standard library is imported.
"""

import ast
import builtins
import importlib
import json
import os
import sys
import types
from typing import Any

LOCKED = "locked"
HERE = os.path.dirname(os.path.abspath(__file__))


def beside(name: str) -> Any:
    """The module in a file beside this one, which no import path leads to; those it needs have been taken before."""
    source = os.path.join(HERE, f"{name}.py")
    module = types.ModuleType(f"stages.score.{name}")
    sys.modules[module.__name__] = module  # dataclasses look their module up, and later files import from it
    with open(source, encoding="utf-8") as file:
        exec(compile(file.read(), source, "exec"), module.__dict__)
    return module


def main() -> None:
    with os.fdopen(int(sys.argv[1]), encoding="utf-8") as file:
        request = json.load(file)
    remote, _, peer = beside("remote"), beside("values"), beside("peer")
    with os.fdopen(request["started"], "w") as started:
        try:
            lock(request)
        except (OSError, ValueError) as error:
            started.write(f"{type(error).__name__}: {error}")
            os._exit(1)
        started.write(LOCKED)
    if request["role"] == "program":
        run(request["source"], "__main__")
        return
    send, receive = os.fdopen(request["send"], "wb"), os.fdopen(request["receive"], "rb")
    if request["role"] == "code":
        serve(request["source"], peer.Peer(receive, send, True))
    else:
        verdict = {"outcome": test(request["source"], peer.Peer(receive, send, False), remote.Remote)}
        os.write(request["verdict"], json.dumps(verdict).encode())
    os._exit(0)


def lock(request: dict[str, Any]) -> None:
    lockdown, calls = beside("lockdown"), beside("system_calls")
    bounds = lockdown.Bounds(request["cpu_seconds"], request["memory"])
    if request["unlocked"]:
        lockdown.limit(bounds)
    else:
        lockdown.lock(request["readable"], os.getcwd(), bounds, calls.filter_program(os.getpid()))


def run(source: str, name: str) -> dict[str, Any]:
    """The namespace of the source, after it has been run as the module `name`."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, "<code>", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def serve(source: str, peer: Any) -> None:
    """Run the code, then let the other process use the names it asks for."""
    namespace = run(source, "generated")

    def named(names: list[str]) -> dict[str, Any]:
        found = {name: namespace[name] for name in names if name in namespace}
        modules = {name: value.__name__ for name, value in found.items() if isinstance(value, types.ModuleType)}
        return {"values": {name: value for name, value in found.items() if name not in modules}, "modules": modules}

    peer.values.exported.append(named)
    peer.serve()


def test(source: str, peer: Any, remote: Any) -> str:
    """passed, failed, or ended if the test itself left its process."""
    tree = ast.parse(source)
    try:
        namespace = {"__name__": "test"} | names_of(tree, remote(peer, 0))
        exec(compile(tree, "<test>", "exec", dont_inherit=True), namespace)
    except SystemExit:
        return "ended"
    except BaseException:
        return "failed"
    return "passed"


def names_of(tree: ast.AST, named: Any) -> dict[str, Any]:
    """What the names of a test stand for, as far as the code has them.

    A name of Python's own, such as `sum` or `math`, is the code's only where the test uses no other name of it: the
    code could else put its own `abs` or `math` in the place of the one that compares.
    """
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not node.id.startswith("__")}
    own = {name for name in used if hasattr(builtins, name) or name in sys.stdlib_module_names}
    values = taken(named, used - own)
    if values:
        return {name: importlib.import_module(name) for name in own if not hasattr(builtins, name)} | values
    return taken(named, own)


def taken(named: Any, names: set[str]) -> dict[str, Any]:
    """The code's values of the names, and none of others; modules of the standard library are this process's own."""
    given = named(sorted(names))
    modules = {name: str(module) for name, module in given["modules"].items()}
    found = {n: importlib.import_module(m) for n, m in modules.items() if m.split(".")[0] in sys.stdlib_module_names}
    return {name: value for name, value in (found | given["values"]).items() if name in names}


if __name__ == "__main__":
    main()
