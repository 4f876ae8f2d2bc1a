"""Runs perftest's programs (ib_send_bw and the like), which come in pairs."""

import re
import subprocess
import time


def wait_for_listener(server, port, patience_s):
    """Until `server` listens: by its own network namespace's table."""
    deadline = time.monotonic() + patience_s
    pattern = re.compile(rf":{port:04X} [0-9A-F]+:0000 0A ")
    while time.monotonic() < deadline and server.poll() is None:
        for table in ("tcp", "tcp6"):
            with open(f"/proc/{server.pid}/net/{table}", encoding="ascii") as f:
                if pattern.search(f.read()):
                    return
        time.sleep(0.01)
    raise RuntimeError(f"does not listen: {server.args}")


def run_pair(server_command, client_command, port, environment, patience_s):
    """The numbers of the client's result line.

    Of a *_bw program: bytes, iterations, peak, average (MiB/s), messages/s; of
    a *_lat one: bytes, iterations, min, max, typical (us) and so on. Raises
    RuntimeError, with the client's output, where there is no such line.
    """
    server = subprocess.Popen(server_command, env=environment,
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.STDOUT)
    try:
        wait_for_listener(server, port, patience_s)
        client = subprocess.run(client_command, env=environment,
                                stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=patience_s,
                                check=False)
        server.wait(timeout=patience_s)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(str(error)) from error
    finally:
        server.kill()
        server.wait()
    for line in client.stdout.decode().splitlines():
        if re.fullmatch(r"\s*\d+\s+\d+(\s+[-\d.]+)+\s*", line):
            return [float(field) for field in line.split()]
    raise RuntimeError(f"{' '.join(client_command)}\n{client.stdout.decode()}")
