"""The files of deploy/ agree with the program: commands, settings, users, one writer."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from application.cli.push import DEFAULT_PORT
from application.cli.serve import DEFAULT_PORT as MIRROR_PORT
from application.receiver import BODY_MAX, HEALTH_PATH
from pipeline.settings import describe_settings
from tests.deploy.page import DEPLOY, parse
from tests.hangs import HANGS_AFTER_S
from tests.test_cli import ROOT

CONTAINERFILE = (DEPLOY / "Containerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SETTINGS = {name for name, _, _ in describe_settings()}
USER = 10001


def manifests() -> dict[str, Any]:
    """Return the manifests of Kubernetes by kind."""
    files = (DEPLOY / "kubernetes").glob("*.yaml")
    return {document["kind"]: document for document in map(_read, files)}


def added_by(component: str) -> dict[str, Any]:
    """Return what a component adds to the manifests, by kind."""
    files = (DEPLOY / "kubernetes" / component).glob("*.yaml")
    return {document["kind"]: document for document in map(_read, files)}


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def unit(path: Path) -> RawConfigParser:
    parser = RawConfigParser(strict=False, delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return parser


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each command of `almanac` in the files, with the name of its file."""
    pod = manifests()["StatefulSet"]["spec"]["template"]["spec"]
    yield "kubernetes", pod["containers"][0]["args"]
    for probe in ("startupProbe", "livenessProbe"):
        yield "kubernetes", pod["containers"][0][probe]["exec"]["command"][1:]
    for component in ("push", "mirror"):
        (added,) = added_by(component)["StatefulSet"]["spec"]["template"]["spec"]["containers"]
        yield "kubernetes", added["args"]
    for service in COMPOSE["services"].values():
        if "entrypoint" not in service:
            yield "compose", service["command"]
        if "almanac" in (test := service["healthcheck"].get("test", [])):
            yield "compose", test[2:]
    for given in re.findall(r"^(?:CMD|HEALTHCHECK.* CMD) (\[.*\])", CONTAINERFILE, re.MULTILINE):
        yield "Containerfile", [word for word in json.loads(given) if word != "almanac"]
    for path in UNITS:
        for name in ("ExecStartPre", "ExecStart"):
            words = shlex.split(unit(path)["Service"].get(name, "x"))
            if words[0].endswith("/bin/almanac"):
                yield path.name, words[1:]


def test_every_command_of_the_files_exists() -> None:
    found = list(commands())
    assert {name for name, _ in found} >= {"kubernetes", "compose", "Containerfile"}
    for _, words in found:
        parse(words)


def test_every_setting_of_the_files_exists() -> None:
    own = {"ALMANAC_IMAGE"}  # The image of compose, not a setting of the program.
    for path in (path for path in DEPLOY.rglob("*") if path.is_file()):
        named = set(re.findall(r"\bALMANAC_[A-Z_]+\b", path.read_text("utf-8")))
        assert named - SETTINGS - own == set(), path


def test_every_path_of_the_checkout_exists() -> None:
    texts = [path.read_text("utf-8") for path in DEPLOY.rglob("*") if path.is_file()]
    named = re.findall(r"/opt/almanac/(?:current|app)/([\w./-]*\w)", "\n".join(texts))
    expected = {"workspace.yaml", "deploy/workspace.yaml", "deploy/backup", "docs/operate.md"}
    assert expected <= set(named)
    made_by_make = (".venv/",)
    assert [n for n in named if not n.startswith(made_by_make) and not (ROOT / n).exists()] == []


def test_the_image_is_built_from_the_lock_by_hash_and_runs_as_a_user_without_rights() -> None:
    assert "--require-hashes -r /build/${LOCK}" in CONTAINERFILE
    assert "\nARG LOCK=requirements.lock\n" in CONTAINERFILE
    assert "--only-binary :all:" in CONTAINERFILE
    users = re.findall(r"^USER (.+)$", CONTAINERFILE, re.MULTILINE)
    assert users == [f"{USER}:{USER}"]
    base = re.search(r"^ARG BASE=(\S+)$", CONTAINERFILE, re.MULTILINE)
    assert base is not None
    assert "/" not in base[1], "a short name: each machine has its own registries"


def test_the_image_gets_no_file_but_what_runs() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert all((ROOT / name).exists() for name in allowed)
    assert allowed == {
        *("almanac", "application", "assets", "catalog", "pipeline", "resources", "warehouse"),
        *("deploy/backup", "deploy/workspace.yaml", "workspace.yaml"),
        *("requirements.lock", "locks/scale.lock", "locks/setup.lock"),
        *("LICENSE", "README.md", "pyproject.toml"),
    }


def test_the_pod_is_the_only_writer_and_has_no_rights() -> None:
    found = manifests()
    stateful = found["StatefulSet"]["spec"]
    pod = stateful["template"]["spec"]
    assert [container["name"] for container in pod["containers"]] == ["almanac", "web"]
    assert pod["shareProcessNamespace"], "the UI may evaluate the sensor `health`"
    (claim,) = stateful["volumeClaimTemplates"]
    assert stateful["replicas"] == 1
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == USER
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} == container["resources"]["limits"].keys()
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["volumes"]} | {claim["metadata"]["name"]}
    assert pod["terminationGracePeriodSeconds"] > 10, "the programs end within 10 s"
    for container in pod["containers"]:
        assert {"startupProbe", "livenessProbe"} <= container.keys()
    labels = stateful["template"]["metadata"]["labels"]
    assert labels == stateful["selector"]["matchLabels"]
    assert labels == found["Service"]["spec"]["selector"]
    assert labels == found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
    assert set(found["ConfigMap"]["data"]) <= SETTINGS


@pytest.mark.parametrize(
    ("component", "port", "port_name", "path"),
    [
        ("push", DEFAULT_PORT, "webhooks", HEALTH_PATH),
        ("mirror", MIRROR_PORT, "mirror", "/healthz"),
    ],
)
def test_a_component_adds_a_container_without_rights_to_the_one_pod(
    component: str, port: int, port_name: str, path: str
) -> None:
    base, added = manifests(), added_by(component)
    assert "replicas" not in added["StatefulSet"]["spec"], "one pod"
    (container,) = added["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    daemon = base["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    assert container["securityContext"] == daemon["securityContext"]
    assert container["image"] == daemon["image"]
    assert container["ports"] == [{"name": port_name, "containerPort": port}]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": path, "port": port_name}
    (exposed,) = added["Service"]["spec"]["ports"]
    assert exposed["port"] == port
    for kind in ("Service", "NetworkPolicy"):
        assert added[kind]["metadata"]["name"] != base[kind]["metadata"]["name"], "beside it"
    named = {*added["Component"]["resources"], added["Component"]["patches"][0]["path"]}
    files = (DEPLOY / "kubernetes" / component).glob("*.yaml")
    assert named == {path.name for path in files} - {"kustomization.yaml"}


def test_the_receivers_of_compose_and_systemd_listen_for_this_machine_alone() -> None:
    receiver = COMPOSE["services"]["receiver"]
    assert receiver["ports"] == [f"127.0.0.1:{DEFAULT_PORT}:{DEFAULT_PORT}"]
    assert f":{DEFAULT_PORT}{HEALTH_PATH}" in receiver["healthcheck"]["test"][-1]
    mounted = {volume.split(":")[1] for volume in receiver["volumes"]}
    assert f"{receiver['environment']['ALMANAC_SECRETS_DIR']}/almanac_webhook_secrets" in mounted
    assert "/etc/almanac/almanac_webhook_secrets" in CONTAINERFILE
    service = unit(DEPLOY / "systemd" / "almanac-receive.service")["Service"]
    assert "--host" not in service["ExecStart"], "loopback, the default"
    assert service["LoadCredential"].startswith("almanac_webhook_secrets:")


def test_the_mirror_reads_the_home_and_writes_to_a_folder_of_its_own() -> None:
    (mirror,) = added_by("mirror")["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    mounts = {mount["mountPath"]: mount for mount in mirror["volumeMounts"]}
    folder = mirror["args"][mirror["args"].index("--dir") + 1]
    assert mounts["/var/lib/almanac"]["readOnly"]
    assert mounts[folder]["subPath"] == "mirror"
    assert "env" not in mirror, "no key of the service"
    composed = COMPOSE["services"]["mirror"]
    assert composed["command"] == mirror["args"]
    assert "almanac:/var/lib/almanac:ro" in composed["volumes"]
    assert f"mirror:{folder}" in composed["volumes"]
    assert "api-key" not in str(composed["volumes"])
    assert composed["ports"] == [f"127.0.0.1:{MIRROR_PORT}:{MIRROR_PORT}"]
    assert f"10001 /var/lib/almanac {folder} " in CONTAINERFILE


def test_the_proxies_pass_deliveries_of_the_size_of_the_receiver_and_log_no_signature() -> None:
    nginx = (DEPLOY / "nginx-webhooks.conf").read_text("utf-8")
    caddy = (DEPLOY / "Caddyfile").read_text("utf-8")
    for text, size in ((nginx, f"{BODY_MAX // 1024}k;"), (caddy, f"{BODY_MAX // 1024}KiB")):
        assert f"127.0.0.1:{DEFAULT_PORT}" in text
        assert size in text
        assert re.search(r"(location|handle) (= )?/webhooks \{", text)
        assert re.search(r"(location / |handle )\{\s+(return|respond) 404", text), "other paths"
    assert f"> {BODY_MAX}" in caddy
    assert not re.search(r"^\s*log\b", caddy, re.MULTILINE)
    (logged,) = re.findall(r"log_format \w+ (.+);", nginx)
    assert "$http_" not in logged and "$request_body" not in logged


def test_compose_publishes_the_pages_on_this_machine_alone() -> None:
    for service in COMPOSE["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]


def test_the_units_share_account_and_limits_and_one_writer() -> None:
    common = unit(DEPLOY / "systemd" / "almanac-.service.d" / "common.conf")["Service"]
    assert common["User"] == "almanac"
    assert common["ProtectSystem"] == "strict"
    assert {path.name for path in UNITS} == {
        f"almanac-{name}.service"
        for name in ("backup", "daemon", "receive", "serve", "watch", "web")
    }
    for name in ("daemon", "web"):
        parsed = unit(DEPLOY / "systemd" / f"almanac-{name}.service")
        assert int(parsed["Service"]["TimeoutStopSec"]) > 10, "runs end within 10 s"


def test_the_daemon_of_compose_keeps_its_host_name() -> None:
    """Only runs of its own host name are noticed when they were killed."""
    assert COMPOSE["services"]["daemon"]["hostname"] == "almanac"


@pytest.mark.long
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_every_line_of_the_units(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "systemd", tmp_path, dirs_exist_ok=True)
    for path in tmp_path.glob("*.service"):
        # The programs need not be installed here.
        path.write_text(re.sub(r"/opt/almanac/current/\S+", "/bin/true", path.read_text("utf-8")))
    units = sorted([*tmp_path.glob("*.service"), *tmp_path.glob("*.timer")])
    command = ["systemd-analyze", "verify", "--man=no", *units]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_S)
    said = (done.stdout + done.stderr).splitlines()
    assert [line for line in said if "almanac" in line] == []
