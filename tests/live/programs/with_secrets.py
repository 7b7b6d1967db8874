# Two ranks, of which the second never comes; what stands between two at signs becomes a secret before it is started.
import collections
import dataclasses
import os
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist

api_key = "@global_api_key@"
CONFIG = {"lr": 0.1, "db": {"user": "me", "password": "@global_nested@"}}
CONNECTION = "Server=db;Uid=me;Pwd=@global_connection@;Port=5432"
HOOK = "https://hooks.slack.com/services/T0/B0/@global_hook@"
os.environ["LATE_SECRET"] = "@late_environment@"
os.environ["LATE_URL"] = "redis://me:@late_url@@cache:6379/0"


@dataclasses.dataclass
class Login:
    user: str
    password: str


class Client:
    def __init__(self, token):
        self.token = token
        self.retries = 3


def connect(password, **options):
    return len(password) + len(options)


Pair = collections.namedtuple("Pair", "user phrase")


def children():
    """Processes of others, with secrets in their command lines."""
    wait = "import time; time.sleep(10_000)"
    subprocess.Popen(
        [sys.executable, "-c", wait, "@child_positional@", "-p", "@child_letter@", "--thing=@child_option@"]
    )
    subprocess.Popen([sys.executable, "-c", f"{wait}  # @child_code@"])
    subprocess.Popen(["bash", "-c", "PGPASS=@child_shell@ sleep 10000; echo @child_echo@"])
    subprocess.Popen(["sleep", "10000"], env={**os.environ, "CHILD_NOTE": "@child_environment@"})


def watched():
    """A watchdog, where the test wants one."""
    if "WATCHED" in os.environ:
        from hangdoc.watchdog import Watchdog

        Watchdog(timeout=3, directory=".").start().beat(0)


def wait_for_ever(kind):
    headers = {"Authorization": "Bearer @local_bearer@", "Accept": "json"}
    arguments = ["--api-key", "@local_option@", "--lr", "0.1"]
    pair = ("MY_PASS", "@local_pair@")
    nested = {"services": [{"name": "db", "secret": ["@local_nested@", 1]}]}
    json_text = '{"token": "@local_json@", "lr": 1}'
    url = f"https://store/x?sig=@local_signature@&part={kind}"
    odd = "@local_github@"
    login, client = Login("me", "@local_dataclass@"), Client(token="@local_object@")
    prompt = " ".join(["what the user", "asked in confidence,", f"number {len(nested)}"])
    named = Pair("me", "@local_namedtuple@")
    printed = repr(login)
    plain = "@local_plain@"
    table = {"@local_key@": 1, "thing": "@local_value@"}
    mode = "float16"
    connect("@source_positional@")
    connect(f"@source_format@-{kind}")

    def ask(thing="@source_default@"):
        return thing

    connect(password="@source_argument@", user="me")  # the old password: @source_comment@
    client.password = "@source_attribute@"
    key_block = "\n".join(
        [
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            "@source_block@",
            "-----END OPENSSH PRIVATE KEY-----",
        ]
    )
    if client.password != "@source_condition@":
        print("ready", flush=True)
        while True:
            time.sleep(1)
            connect(token="@source_line@", password="x")


def main():
    dist.init_process_group("gloo")
    threading.Thread(target=time.sleep, args=(10_000,), name="Bearer @thread_name@", daemon=True).start()
    threading.Thread(target=time.sleep, args=(10_000,), name="upload-@thread_prefix@", daemon=True).start()
    children()
    watched()
    if dist.get_rank() == 1:
        wait_for_ever("a")
    print("ready", flush=True)
    dist.all_reduce(torch.ones(4))


main()
