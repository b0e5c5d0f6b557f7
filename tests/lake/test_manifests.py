"""Every field of the manifests is one of Kubernetes' interface, by its own Python client."""

import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.page import DEPLOY
from tests.hangs import HANGS_AFTER_S

pytestmark = pytest.mark.lake
PLAIN: Final[dict[str, Any]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": (int, float),
    "datetime": str,
}
COMPONENTS: Final = "# components: [push, mirror]"


def find_faults(value: Any, kind: str, where: str) -> list[str]:
    """Return the unknown and missing fields and the values of another type, at any depth."""
    models: Any = import_module("kubernetes.client.models")
    if kind in ("object", "IntOrString"):
        return []
    if kind in PLAIN:
        return [] if isinstance(value, PLAIN[kind]) else [f"{where}: {value!r} is no {kind}"]
    if kind.startswith("list["):
        items = enumerate(value)
        return [
            fault for n, item in items for fault in find_faults(item, kind[5:-1], f"{where}[{n}]")
        ]
    if kind.startswith("dict["):
        inner = kind[5:-1].partition(", ")[2]
        return [
            f for name, item in value.items() for f in find_faults(item, inner, f"{where}.{name}")
        ]
    model = getattr(models, kind)
    fields = {name: field for field, name in model.attribute_map.items()}
    faults = [f"{where}.{name} is no field of {kind}" for name in value if name not in fields]
    known = {fields[name]: item for name, item in value.items() if name in fields}
    for field, item in known.items():
        faults += find_faults(item, model.openapi_types[field], f"{where}.{field}")
    try:
        model(**known)
    except ValueError as error:  # A required field is missing, or a value is not allowed.
        faults.append(f"{where}: {error}")
    return faults


@pytest.mark.parametrize("components", ["", "push", "mirror", "push, mirror, scale"])
def test_every_field_of_the_manifests_exists(tmp_path: Path, components: str) -> None:
    pytest.importorskip("kubernetes", reason="make lake-tools")
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    folder = tmp_path / "kubernetes"
    shutil.copytree(DEPLOY / "kubernetes", folder)
    text = (folder / "kustomization.yaml").read_text("utf-8")
    assert COMPONENTS in text
    given = f"components: [{components}]" if components else ""
    (folder / "kustomization.yaml").write_text(text.replace(COMPONENTS, given), "utf-8")
    done = subprocess.run(
        ["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=HANGS_AFTER_S
    )
    assert done.returncode == 0, done.stderr
    for document in yaml.safe_load_all(done.stdout):
        version = document["apiVersion"].rpartition("/")[2]
        kind = version.capitalize() + document["kind"]
        assert find_faults(document, kind, document["metadata"]["name"]) == []


def test_a_wrong_field_is_found() -> None:
    pytest.importorskip("kubernetes", reason="make lake-tools")
    port = {"port": "x", "targetport": 1}
    service = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [port]}}
    assert len(find_faults(service, "V1Service", "service")) == 2
