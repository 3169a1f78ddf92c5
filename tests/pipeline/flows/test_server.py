"""The server that a run reports to: the one that is set, or one of its own that ends with it."""

import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import psutil
import pytest

from pipeline.flows.server import Api, check_answers, settings_of
from stages.common.errors import StageError
from tests.workspace import ROOT

START = """
import time
import psutil
from pipeline.flows.server import open_api, wait_for
api = open_api()
wait_for(api)
print(api.url, psutil.Process().children()[0].pid, flush=True)
time.sleep(60)
"""


def test_a_server_that_is_set_and_does_not_answer_is_named_with_the_remedy():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/api"
    with pytest.raises(StageError) as error:
        check_answers(url)
    assert url in str(error.value)
    assert "prefect server start" in str(error.value)
    assert "PREFECT_API_URL" in str(error.value)


def test_something_else_at_the_url_is_named(httpserver_404):
    with pytest.raises(StageError, match="is no Prefect API: status 404"):
        check_answers(httpserver_404)


def test_only_a_server_that_stays_hears_the_heartbeats_of_flows():
    from prefect.settings import get_current_settings

    usual = get_current_settings().flows.heartbeat_frequency
    assert usual is not None
    with settings_of(Api("http://127.0.0.1:4200/api")):
        assert get_current_settings().flows.heartbeat_frequency == usual
    with settings_of(Api("http://127.0.0.1:4200/api", own=True)):
        assert get_current_settings().flows.heartbeat_frequency is None


@pytest.fixture
def httpserver_404():
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    class Nothing(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(404)

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Nothing)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/api"
    server.shutdown()


def test_a_servers_own_process_listens_on_loopback_and_ends_with_a_run_that_is_killed(tmp_path):
    environment = os.environ | {"PREFECT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    environment.pop("PREFECT_API_URL", None)
    run = subprocess.Popen(
        [sys.executable, "-c", "import pipeline" + START],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url, pid = run.stdout.readline().split()
        server = psutil.Process(int(pid))
        assert httpx.get(f"{url}/health").status_code == 200
        listening = {c.laddr.ip for c in server.net_connections() if c.status == psutil.CONN_LISTEN}
        assert listening == {"127.0.0.1"}
        assert os.getsid(server.pid) != os.getsid(run.pid)  # Ctrl-C in the terminal does not reach it
        settings = httpx.get(f"{url}/admin/settings").json()
        assert settings["server"]["analytics_enabled"] is False
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    deadline = time.monotonic() + 5
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the server has outlived its run"
        time.sleep(0.1)
