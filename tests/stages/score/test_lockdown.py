"""Escape attempts of generated code, in real processes: each must fail, and the control beside it must not."""

import json
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
    "shmctl": 31,
    "semctl": 66,
    "semop": 65,
    "msgctl": 71,
    "msgrcv": 70,
    "mq_unlink": 241,
    "kcmp": 312,
    "userfaultfd": 323,
    "perf_event_open": 298,
    "setns": 308,
    "process_mrelease": 448,
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


OTHERS = {
    "setpriority": "os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
    "sched_setaffinity": "os.sched_setaffinity({pid}, {{0}})",
    "sched_setscheduler": "os.sched_setscheduler({pid}, os.SCHED_BATCH, os.sched_param(0))",
    "sched_setparam": "os.sched_setparam({pid}, os.sched_param(0))",
    "sched_setattr": "called(314, {pid}, b'\\x30' + bytes(47), 0)",
    "ioprio_set": "called(251, 1, {pid}, 3 << 13)",
    "migrate_pages": "called(256, {pid}, 1, b'\\1' + bytes(7), b'\\1' + bytes(7))",
    "move_pages": "called(279, {pid}, 0, 0, 0, 0, 0)",
    "prlimit": "import resource\nresource.prlimit({pid}, resource.RLIMIT_NOFILE, (99, 99))",
    "process_vm_readv": "called(310, {pid}, 0, 0, 0, 0, 0)",
    "fcntl": "import fcntl\nfcntl.fcntl(0, fcntl.F_SETOWN, {pid})",
    "fcntl_ex": "called(72, 0, 15, __import__('struct').pack('ii', 1, {pid}))",
    "core_share": "called(157, 62, 2, {pid}, 0, 0)",
    "kill": "os.kill({pid}, 0)",
}
VICTIM = """
import ctypes, fcntl, json, os, resource, struct, subprocess, sys, tempfile
from stages.score import lockdown, system_calls

def called(*given):
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(*[v if isinstance(v, bytes) else ctypes.c_long(v) for v in given]) < 0:
        raise OSError(ctypes.get_errno(), "")

def tried(attempt, locked):
    receives, sends = os.pipe()
    if os.fork() == 0:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        try:
            if locked:
                program = system_calls.filter_program(os.getpid())
                lockdown.lock(["/usr"], folder, lockdown.Bounds(10, 1 << 30), program)
            try:
                exec(attempt.format(pid=victim.pid), globals())
                told = "done"
            except OSError as error:
                told = str(error.errno)
            os.write(sends, f"{told} {os.getuid()}".encode())
        finally:
            os._exit(0)
    os.close(sends)
    os.wait()
    return os.read(receives, 99).decode().split()

def state():
    pid = victim.pid
    told = [os.getpriority(os.PRIO_PROCESS, pid), sorted(os.sched_getaffinity(pid)), os.sched_getscheduler(pid)]
    return [*told, open(f"/proc/{pid}/limits").read(), ctypes.CDLL(None).syscall(252, 1, pid)]

folder = tempfile.mkdtemp()
os.chmod(folder, 0o777)
told = {}
as_nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
for name, attempt in json.loads(sys.argv[1]).items():
    victim = subprocess.Popen(["sleep", "60"], **as_nobody)
    before = state()
    printed, uid = tried(attempt, True)
    unchanged = state() == before
    told[name] = [printed, unchanged, int(uid), tried(attempt, False)[0], state() != before]
    victim.kill()
    victim.wait()
os.rmdir(folder)
print(json.dumps(told))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86-64")
def test_an_unrelated_process_of_the_same_user_who_is_not_root_cannot_be_changed():
    """Each attempt is made again without the lock, where it does something."""
    command = [sys.executable, "-c", VICTIM, json.dumps(OTHERS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {name: found[:2] for name, found in told.items()} == {name: ["1", True] for name in OTHERS}
    assert all(found[2] != 0 for found in told.values())
    of_every_kernel = set(OTHERS) - {"sched_setattr", "core_share", "migrate_pages", "move_pages", "process_vm_readv"}
    assert {name for name, found in told.items() if found[3] == "done"} >= of_every_kernel
    changed = {name for name, found in told.items() if found[4]}
    assert changed >= {"setpriority", "sched_setaffinity", "sched_setscheduler", "ioprio_set", "prlimit"}


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


@pytest.mark.parametrize("code", ["print(1)", "raise SystemExit(3)", "import os\nos.abort()", "import os\nos.close(1)"])
def test_a_group_is_killed_while_its_number_is_still_its_own(code, monkeypatch):
    kill, states = os.killpg, []

    def killed(group, number):
        states.append(os.waitid(os.P_PID, group, os.WEXITED | os.WNOWAIT) is not None)  # an error if it was waited for
        kill(group, number)

    monkeypatch.setattr(os, "killpg", killed)
    printed, outcome = output_of(code, "", JAIL)
    assert states == [True]
    assert outcome == ("passed" if code.endswith(("print(1)", "close(1)")) else "failed")
    assert printed == ("1\n" if code == "print(1)" else "")


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
