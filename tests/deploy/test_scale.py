"""The files of deploy/ for PostgreSQL, and for a pod of Kubernetes for each run."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.instance import DEFAULT_CONFIG
from tests.deploy.page import DEPLOY
from tests.hangs import HANGS_AFTER_S

SCALE = DEPLOY / "kubernetes" / "scale"
COMPONENTS = "# components: [push, mirror]"
STORAGE = {
    "hostname": {"env": "DAGSTER_PG_HOST"},
    "username": {"env": "DAGSTER_PG_USERNAME"},
    "password": {"env": "DAGSTER_PG_PASSWORD"},
    "db_name": {"env": "DAGSTER_PG_DB"},
    "port": 5432,
}
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def customised(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The manifests with all three components."""
    folder = tmp_path_factory.mktemp("scale") / "kubernetes"
    shutil.copytree(DEPLOY / "kubernetes", folder)
    made = folder / "kustomization.yaml"
    text = made.read_text("utf-8")
    assert COMPONENTS in text
    made.write_text(text.replace(COMPONENTS, "components: [push, mirror, scale]"), "utf-8")
    done = subprocess.run(
        ["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=HANGS_AFTER_S
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def named(documents: list[dict[str, Any]], kind: str, name: str) -> Any:
    (found,) = [
        document
        for document in documents
        if document["kind"] == kind and document["metadata"]["name"] == name
    ]
    return found


def pods(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for document in documents:
        if document["kind"] in ("StatefulSet", "Deployment"):
            yield document["spec"]["template"]


@pytest.mark.parametrize("path", [SCALE / "dagster.yaml", DEPLOY / "scale" / "dagster.yaml"])
def test_the_instance_differs_from_that_of_a_home_in_storage_launcher_and_output(
    path: Path,
) -> None:
    found = read(path)
    assert found.pop("storage") == {"postgres": {"postgres_db": STORAGE}}
    assert ("run_launcher" in found) is (path.parent == SCALE)
    found.pop("run_launcher", None)
    # The containers have no disk in common on which the web server could find the output.
    assert found.pop("compute_logs")["class"] == "NoOpComputeLogManager"
    assert found == read(DEFAULT_CONFIG)


@needs_kubectl
def test_each_program_has_a_pod_of_its_own_and_there_is_one_daemon(
    customised: list[dict[str, Any]],
) -> None:
    (code, daemon, web) = (
        named(customised, "StatefulSet", "almanac")["spec"],
        named(customised, "Deployment", "almanac-daemon")["spec"],
        named(customised, "Deployment", "almanac-web")["spec"],
    )
    names = [c["name"] for c in code["template"]["spec"]["containers"]]
    assert sorted(names) == ["almanac", "mirror", "receiver"]
    assert [c["name"] for c in daemon["template"]["spec"]["containers"]] == ["daemon"]
    assert [c["name"] for c in web["template"]["spec"]["containers"]] == ["web"]
    assert (daemon["replicas"], daemon["strategy"]) == (1, {"type": "Recreate"})
    for spec in (code, daemon, web):
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
    server = named(customised, "Service", "almanac-code")["spec"]
    assert server["selector"] == code["selector"]["matchLabels"]
    pages = named(customised, "Service", "almanac")["spec"]["selector"]
    assert pages == web["selector"]["matchLabels"]


@needs_kubectl
def test_no_pod_has_rights_beyond_its_task(customised: list[dict[str, Any]]) -> None:
    for template in pods(customised):
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
            assert {"cpu", "memory"} == container["resources"]["limits"].keys()
    code = named(customised, "StatefulSet", "almanac")["spec"]["template"]["spec"]
    assert code["automountServiceAccountToken"] is False
    for name in ("almanac-daemon", "almanac-web"):
        pod = named(customised, "Deployment", name)["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == "almanac-launcher"
        assert "almanac-key" not in str(pod), "the key of the service"
        assert "almanac-lake" not in str(pod)
    (binding,) = [found for found in customised if found["kind"] == "RoleBinding"]
    assert [subject["name"] for subject in binding["subjects"]] == ["almanac-launcher"]


@needs_kubectl
def test_a_run_gets_the_settings_key_and_home_of_the_code_server(
    customised: list[dict[str, Any]],
) -> None:
    found = named(customised, "ConfigMap", "almanac-dagster")["data"]["dagster.yaml"]
    assert yaml.safe_load(found) == read(SCALE / "dagster.yaml")
    given = yaml.safe_load(found)["run_launcher"]["config"]
    stateful = named(customised, "StatefulSet", "almanac")["spec"]
    code = stateful["template"]["spec"]
    (server,) = [each for each in code["containers"] if each["name"] == "almanac"]
    assert given["job_image"] == server["image"]
    assert given["job_namespace"] == code["containers"][0].get("namespace", "almanac")
    assert given["resources"]["limits"] == server["resources"]["limits"]
    sources = {next(iter(each.values()))["name"] for each in server["envFrom"]}
    options = given["run_k8s_config"]["container_config"]
    assert options["command"] == ["env"], "the entry point of the image is `almanac`"
    optional = {each["secret_ref"]["name"] for each in options["env_from"]}
    assert sources == {*given["env_config_maps"], *given["env_secrets"], *optional}
    mounted = {mount["mountPath"] for mount in server["volumeMounts"]}
    assert mounted == {mount["mount_path"] for mount in options["volume_mounts"]}
    assert given["dagster_home"] in mounted
    environment = {each["name"]: each.get("value") for each in server["env"]}
    assert dict(text.split("=") for text in given["env_vars"]).items() <= environment.items()
    assert environment["DAGSTER_HOME"] == given["dagster_home"]
    pod = given["run_k8s_config"]["pod_spec_config"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (claim,) = stateful["volumeClaimTemplates"]
    # A StatefulSet names the volume of its first pod by this rule.
    name = f"{claim['metadata']['name']}-almanac-0"
    assert volumes["almanac"]["persistent_volume_claim"]["claim_name"] == name
    (beside,) = pod["affinity"]["pod_affinity"][
        "required_during_scheduling_ignored_during_execution"
    ]
    assert beside["label_selector"]["match_labels"] == stateful["selector"]["matchLabels"]
    secrets = {volume["name"]: volume for volume in code["volumes"]}
    assert volumes["key"]["secret"]["secret_name"] == secrets["key"]["secret"]["secretName"]
    assert named(customised, "ServiceAccount", given["service_account_name"])


@needs_kubectl
def test_no_manifest_has_a_secret(customised: list[dict[str, Any]]) -> None:
    assert not [found for found in customised if found["kind"] == "Secret"]
    assert "password:" not in str(customised).replace("password: {env: DAGSTER_PG_PASSWORD}", "")
