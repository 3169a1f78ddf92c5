"""Escape attempts of generated code, in real processes: each must fail, and the control beside it must not."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stages.score.sandbox import Jail, output_of, problem

JAIL = Jail(seconds=5.0, memory_mb=512)
FREE = Jail(seconds=5.0, memory_mb=512, unlocked=True)

pytestmark = pytest.mark.skipif(problem() is not None, reason="this machine has no lock")


def tried(body, jail=JAIL):
    """What the statement came to: `done`, or the error's name."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    handled = "except BaseException as error:\n    print(type(error).__name__)\nelse:\n    print('done')\n"
    code = f"import os, sys\ntry:\n{lines}\n{handled}"
    printed, outcome = output_of(code, "", jail)
    assert outcome == "passed", (outcome, printed)
    return printed.strip().splitlines()[-1]


@pytest.fixture
def outside(tmp_path):
    """A file that everybody may read and write."""
    file = tmp_path / "secret"
    file.write_text("42")
    file.chmod(0o666)
    tmp_path.chmod(0o777)
    return file


READS = [
    "open({f!r}).read()",
    "os.listdir({d!r})",
    "os.open({f!r}, os.O_RDONLY)",
    "os.symlink({f!r}, 'l'); open('l').read()",
]
WRITES = [
    "open({f!r}, 'w').write('x')",
    "open({d!r} + '/new', 'w')",
    "os.truncate({f!r}, 0)",
    "os.chmod({f!r}, 0)",
    "os.utime({f!r}, (1, 1))",
    "os.remove({f!r})",
    "os.rename({f!r}, {f!r} + '2')",
    "os.link({f!r}, 'hard'); open('hard', 'w')",
    "os.mkdir({d!r} + '/folder')",
    "os.setxattr({f!r}, 'user.x', b'1')",
]


@pytest.mark.parametrize("attempt", READS + WRITES)
def test_files_outside(attempt, outside):
    before = (outside.read_text(), outside.stat().st_mode, outside.stat().st_mtime_ns, os.listdir(outside.parent))
    assert tried(attempt.format(f=str(outside), d=str(outside.parent))) in ("PermissionError", "OSError")
    assert (
        outside.read_text(),
        outside.stat().st_mode,
        outside.stat().st_mtime_ns,
        os.listdir(outside.parent),
    ) == before


@pytest.mark.parametrize("attempt", READS)
def test_the_attempts_succeed_without_the_lock(attempt, outside):
    assert tried(attempt.format(f=str(outside), d=str(outside.parent)), FREE) == "done"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/etc/hostname", "/proc/self/environ", "/proc/1/cmdline", "/root", "/tmp"]
)
def test_what_lies_where_everybody_knows(path):
    assert tried(f"open({path!r}).read() if not os.path.isdir({path!r}) else os.listdir({path!r})") in (
        "PermissionError",
        "FileNotFoundError",
    )


def test_the_project_and_the_home_cannot_be_read_or_written():
    assert tried(f"open({str(Path(__file__).resolve())!r}).read()") == "PermissionError"
    assert tried(f"open({str(Path.home() / 'x')!r}, 'w')") == "PermissionError"


def test_its_own_folder_and_the_library_can_be_used():
    assert tried("open('a', 'w').write('x')\nassert open('a').read() == 'x'\nos.mkdir('b')\nos.remove('a')") == "done"
    assert (
        tried("import decimal, heapq, random, re, threading, json, datetime, itertools, unicodedata, zoneinfo")
        == "done"
    )
    assert tried("import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()") == "done"
    assert tried("import asyncio\nasync def f(): return 1\nassert asyncio.run(f()) == 1") == "done"


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


CONNECT = "import socket\nsocket.create_connection(('127.0.0.1', {port}), timeout=2).close()"


@pytest.mark.parametrize(
    "attempt",
    [
        CONNECT,
        "import socket\nsocket.socket(socket.AF_UNIX)",
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
        "import socket\nsocket.create_server(('127.0.0.1', 0))",
    ],
)
def test_the_network(attempt, listener):
    assert tried(attempt.format(port=listener)) == "PermissionError"


def test_the_network_is_there_without_the_lock(listener):
    assert tried(CONNECT.format(port=listener), FREE) == "done"


@pytest.mark.parametrize(
    "attempt",
    [
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.system('true') == 0 or os.abort.missing",
        "import subprocess\nsubprocess.run(['/bin/true'])",
        "import multiprocessing\np = multiprocessing.get_context('fork').Process(target=print)\np.start()",
        "os.posix_spawn('/bin/true', ['true'], {{}})",
        "os.kill(os.getppid(), 9)",
        "os.kill(-1, 15)",
        "os.kill({pid}, 0)",
        "os.pidfd_open({pid})",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "import resource\nresource.prlimit({pid}, resource.RLIMIT_AS, (1, 1))",
        "os.chown('.', 1, 1)",
        "os.memfd_create('x')",
        "os.chroot('.')",
        "os.mkfifo('pipe')",
        "os.sethostname.missing" if not hasattr(os, "unshare") else "os.unshare(0x10000000)",
    ],
)
def test_processes_signals_limits_and_the_rest(attempt):
    assert tried(attempt.format(pid=os.getpid())) in (
        "PermissionError",
        "OSError",
        "BlockingIOError",
        "ValueError",
        "AttributeError",
    )


SYSTEM_CALLS = {
    "ptrace": 101,
    "unshare": 272,
    "mount": 165,
    "io_uring_setup": 425,
    "bpf": 321,
    "keyctl": 250,
    "socket": 41,
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86-64")
@pytest.mark.parametrize("name", SYSTEM_CALLS)
def test_system_calls_by_number(name):
    code = (
        "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nprint(l.syscall({}, 0, 0, 0, 0, 0), ctypes.get_errno())"
    )
    assert output_of(code.format(SYSTEM_CALLS[name]), "", JAIL) == ("-1 1\n", "passed")
    assert output_of(code.format(SYSTEM_CALLS[name] | 0x40000000), "", JAIL) == ("-1 38\n", "passed")  # the x32 numbers
    assert output_of(code.format(452), "", JAIL) == ("-1 38\n", "passed")  # newer than the table


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86-64")
def test_no_capabilities_even_for_root():
    code = (
        "import ctypes, struct\nl = ctypes.CDLL(None, use_errno=True)\nheld = ctypes.create_string_buffer(24)\n"
        "print(l.syscall(125, struct.pack('Ii', 0x20080522, 0), held), *struct.unpack('6I', held.raw))"
    )
    assert output_of(code, "", JAIL) == ("0 0 0 0 0 0 0\n", "passed")


def test_the_death_signal_cannot_be_taken_off():
    code = "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nprint(l.prctl(1, 0, 0, 0, 0), ctypes.get_errno())"
    assert output_of(code, "", JAIL) == ("-1 1\n", "passed")


def test_memory_files_and_time():
    assert tried("x = bytearray(2 << 30)") == "MemoryError"
    assert tried(
        "import threading, time\n"
        "for _ in range(10000): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    ) in (
        "RuntimeError",
        "MemoryError",
    )
    assert (
        tried("import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nopen('a', 'wb').write(bytes(64 << 20))")
        == "OSError"
    )
    assert tried("files = [open('a%d' % i, 'w') for i in range(1000)]") == "OSError"
    start = time.monotonic()
    assert output_of("while True: pass", "", Jail(1.0, 512)) == ("", "timeout")
    assert output_of("import time; time.sleep(100)", "", Jail(1.0, 512)) == ("", "timeout")
    assert output_of("while True: print('x' * 1000)", "", JAIL)[1] == "failed"
    assert output_of("import os\nos.close(1)\nos.close(2)\nwhile True: pass", "", Jail(1.0, 512)) == ("", "timeout")
    assert time.monotonic() - start < 15


def test_nothing_is_left_of_folders_however_deep(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = (
        "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nos.mkdir('locked', 0)\nprint('made')"
    )
    assert output_of(code, "", JAIL) == ("made\n", "passed")
    assert os.listdir(tmp_path) == []


def test_no_process_is_left_when_the_caller_is_killed(tmp_path):
    """The caller is killed while the code sleeps: the child dies with it."""
    script = (
        "from stages.score.sandbox import Jail, output_of; import sys;"
        "output_of(\"import os, time; print(os.getpid(), flush=True); time.sleep(300)\", '', Jail(200.0, 512))"
    )
    env = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], env=env) as caller:
        children = Path(f"/proc/{caller.pid}/task/{caller.pid}/children")
        deadline = time.monotonic() + 30
        while not children.read_text().split() and time.monotonic() < deadline:
            time.sleep(0.05)
        (child,) = children.read_text().split()
        while "Sleep" not in Path(f"/proc/{child}/wchan").read_text() and time.monotonic() < deadline - 28:
            time.sleep(0.05)
        time.sleep(1.0)  # it has locked itself
        caller.kill()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    gone = not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text()
    assert gone


def test_a_machine_without_a_lock_is_told(monkeypatch):
    monkeypatch.setattr("stages.score.sandbox._readable", lambda packages: [])
    assert "reading it could not be told" in problem()
    monkeypatch.setattr("sys.platform", "darwin")
    assert "on Linux only" in problem()
