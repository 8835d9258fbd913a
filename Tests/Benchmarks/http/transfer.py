#!/usr/bin/env python3
"""Downloads against a plain program of libcurl: Tests/Benchmarks/http/transfer.py [DIRECTORY].

Needs the build in build/, a C compiler, libcurl with its headers, and nginx, which serves a file of
10 KB and one of 100 MB on loopback. DIRECTORY is where the large body goes; by default in memory.
See transfer.c. A ratio above 1 means: faster than libcurl.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SMALL, LARGE = 10 * 1024, 100 << 20


def main():
    place = sys.argv[1] if len(sys.argv) > 1 else "/dev/shm"
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        (folder / "files").mkdir()
        (folder / "files/small").write_bytes(os.urandom(SMALL))
        (folder / "files/large").write_bytes(os.urandom(LARGE))
        folder.chmod(0o755)
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
        temporary = " ".join(f"{kind}_temp_path {folder}/tmp_{kind};" for kind in
                             ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "nginx.conf").write_text(
            f"{'user root;' if os.getuid() == 0 else ''} daemon off; pid {folder}/pid;"
            f" error_log {folder}/log; worker_processes 1; worker_rlimit_nofile 8192;"
            f" events {{ worker_connections 4096; }} http {{ access_log off; {temporary}"
            f" sendfile on; server {{ listen 127.0.0.1:{port} backlog=4096; root {folder}/files;"
            f" add_header Cache-Control max-age=3600; }} }}")
        nginx = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        server = subprocess.Popen([nginx, "-p", folder, "-c", folder / "nginx.conf",
                                   "-e", folder / "log"])
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
                time.sleep(0.02)
            program, build = folder / "transfer", ROOT / "build"
            subprocess.run(
                [os.environ.get("CC", "cc"), "-O2", f"-I{ROOT}/include", "-o", program,
                 ROOT / "Tests/Benchmarks/http/transfer.c", f"-L{build}", f"-Wl,-rpath,{build}",
                 "-lhutch_http", "-lhutch", "-lcurl"], check=True)
            url = f"http://127.0.0.1:{port}"
            subprocess.run([program, "many", f"{url}/small", str(SMALL)], check=True)
            subprocess.run([program, "large", f"{url}/large", str(LARGE), folder], check=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
