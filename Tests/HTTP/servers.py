#!/usr/bin/env python3
"""The servers of the HTTP tests, on 127.0.0.1: servers.py start DIRECTORY | stop DIRECTORY.

start makes certificates, starts nginx (HTTP/1.1, HTTP/2, TLS), a server that behaves badly on
request, and one that a test tells what to answer, and returns when all answer.
DIRECTORY/servers.txt then has a line "name value" for each port and each pin. They end with stop,
or by themselves after an hour: ctest starts them before all other tests.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from socket import SO_REUSEPORT, SOL_SOCKET, create_connection, socket

LIFE = 3600
HERE = Path(__file__).resolve().parent


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


# ------------------------------------------------------------- certificates


def make_key(folder, name):
    run("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-out", f"{name}.key", cwd=folder)


def make_certificates(folder):
    """An authority; certificates signed by it: good, wrong (another name), old (expired), client;
    and one that nobody signed: own."""
    make_key(folder, "authority")
    run("openssl", "req", "-x509", "-new", "-key", "authority.key", "-subj", "/CN=Test authority",
        "-days", "2", "-out", "authority.pem", cwd=folder)
    (folder / "index.txt").write_text("")
    (folder / "ca.conf").write_text(
        "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\n"
        "default_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n")
    for name, host, dates in (("good", "DNS:localhost,IP:127.0.0.1", ("-days", "2")),
                              ("wrong", "DNS:elsewhere.test", ("-days", "2")),
                              ("old", "DNS:localhost,IP:127.0.0.1",
                               ("-startdate", "200101000000Z", "-enddate", "200102000000Z")),
                              ("client", "DNS:client.test", ("-days", "2"))):
        make_key(folder, name)
        run("openssl", "req", "-new", "-key", f"{name}.key", "-subj", f"/CN={name}",
            "-out", f"{name}.csr", cwd=folder)
        (folder / f"{name}.ext").write_text(f"subjectAltName={host}\n")
        run("openssl", "ca", "-batch", "-notext", "-config", "ca.conf", "-cert", "authority.pem",
            "-keyfile", "authority.key", "-in", f"{name}.csr", "-out", f"{name}.pem",
            "-extfile", f"{name}.ext", *dates, cwd=folder)
    make_key(folder, "own")
    run("openssl", "req", "-x509", "-new", "-key", "own.key", "-subj", "/CN=own", "-days", "2",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", "own.pem", cwd=folder)
    (folder / "client_both.pem").write_text(
        (folder / "client.pem").read_text() + (folder / "client.key").read_text())


def pin_of(folder, name):
    """The SHA-256 of the public key, in hexadecimal."""
    key = subprocess.run(
        f"openssl x509 -in {name}.pem -pubkey -noout | openssl pkey -pubin -outform der"
        " | openssl dgst -sha256 -r", shell=True, cwd=folder, capture_output=True, text=True)
    return key.stdout.split()[0]


# ------------------------------------------------------------------ servers


def hold_port():
    """A socket that has a port. It does not listen, and gives the port to no process but one of
    this user that shares it on purpose, which the servers do."""
    held = socket()
    held.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    return held


def nginx_configuration(folder, ports, wire):
    (folder / "files").mkdir()
    (folder / "files" / "hello.txt").write_text("hello\n")
    (folder / "files" / "million").write_bytes(bytes(range(250)) * 4000)
    (folder / "files" / "ten").write_bytes(b"0123456789" * 1024)
    locations = (f"root {folder}/files; default_type text/plain;"
                 f" location /wire/ {{ proxy_pass http://127.0.0.1:{wire}/;"
                 " proxy_http_version 1.1; proxy_redirect off; proxy_request_buffering off;"
                 " proxy_buffering off; }")
    blocks = [f"server {{ listen 127.0.0.1:{ports['plain']} reuseport; {locations} }}",
              f"server {{ listen 127.0.0.1:{ports['h2c']} http2 reuseport; {locations} }}"]
    for name in ("good", "wrong", "old", "own", "asks"):
        certificate = "good" if name == "asks" else name
        asks = f"ssl_client_certificate {folder}/authority.pem; ssl_verify_client on;"
        blocks.append(
            f"server {{ listen 127.0.0.1:{ports[name]} ssl http2 reuseport;"
            f" ssl_certificate {folder}/{certificate}.pem;"
            f" ssl_certificate_key {folder}/{certificate}.key;"
            f" {asks if name == 'asks' else ''} {locations} }}")
    temporary = " ".join(f"{kind}_temp_path {folder}/tmp_{kind};" for kind in
                         ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user} daemon off; worker_processes 1; pid {folder}/nginx.pid;"
        f" error_log {folder}/nginx.log; events {{ worker_connections 2048; }}\n"
        f"http {{ access_log off; {temporary} gzip on; gzip_min_length 1; gzip_types *;"
        f" client_max_body_size 0; keepalive_requests 100000;\n" + "\n".join(blocks) + "\n}\n")


def answers(port):
    try:
        create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def start(folder):
    stop(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make_certificates(folder)
    nginx = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if nginx is None:
        sys.exit("nginx is not installed: scripts/packages does that")
    names = ["plain", "h2c", "good", "wrong", "old", "own", "asks", "wire", "origin",
             "nobody"]
    held = {name: hold_port() for name in names}
    ports = {name: one.getsockname()[1] for name, one in held.items()}
    nginx_configuration(folder, ports, ports["wire"])
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
             "start_new_session": True}
    log = open(folder / "servers.log", "wb")
    children = [
        subprocess.Popen(["timeout", str(LIFE), nginx, "-p", folder, "-c", folder / "nginx.conf",
                          "-e", folder / "nginx.log"], stderr=log, **quiet),
        *(subprocess.Popen(["timeout", str(LIFE), sys.executable, HERE / f"{name}.py",
                            str(ports[name])], stderr=log, pass_fds=[held["nobody"].fileno()],
                           **quiet)
          for name in ("wire", "origin"))]
    (folder / "pids").write_text(" ".join(str(child.pid) for child in children))
    deadline = time.monotonic() + 120
    while not all(answers(ports[name]) for name in names if name != "nobody"):
        if time.monotonic() > deadline or any(child.poll() is not None for child in children):
            sys.exit("a server does not answer: " + (folder / "servers.log").read_text())
        time.sleep(0.02)
    lines = [f"{name} {port}" for name, port in ports.items()]
    lines += [f"pin_{name} {pin_of(folder, name)}" for name in ("good", "own")]
    (folder / "servers.txt").write_text("\n".join(lines) + "\n")


def stop(folder):
    try:
        pids = (folder / "pids").read_text().split()
    except OSError:
        return
    for pid in map(int, pids):
        try:
            os.killpg(pid, signal.SIGTERM)
        except OSError:
            pass
    (folder / "pids").unlink()


if __name__ == "__main__":
    {"start": start, "stop": stop}[sys.argv[1]](Path(sys.argv[2]).resolve())
