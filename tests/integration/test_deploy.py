"""The files of deploy/: the chart, the compose file, the image recipe, the units and the proxy.

Tools that take long to install are optional: `scripts/install --part deploy`. Without a tool, its tests are skipped.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.docs.markdown import DOCS, ROOT, blocks

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/lakelog"
TOOLS = ROOT / ".parts/deploy"
VERSIONS = ("1.33", "1.34", "1.35", "1.36", "1.37")
CUSTOM = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}
"""Custom resources, which the schemas of Kubernetes do not describe. Their validity is not checked."""
EXPOSURE = 2.5
"""The highest rating of `systemd-analyze security` for a unit."""

BILLING = {"image": "shop:1", "target": "shop.app:log", "tokenSecretName": "billing-token"}
SETS: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "one server": {"server": {"replicas": 1}, "podDisruptionBudget": {"enabled": False}},
    "several processes": {"server": {"workers": 4, "memoryBytes": 536870912, "drainSeconds": 60}},
    "autoscaling": {"autoscaling": {"enabled": True, "maxReplicas": 5}},
    "tls": {"server": {"tlsSecretName": "lakelog-tls"}, "service": {"type": "LoadBalancer", "port": 443}},
    "object store": {
        "server": {
            "objectStore": "s3://lake/log",
            "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
            "envFrom": [{"secretRef": {"name": "aws"}}],
        },
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/lake"}},
    },
    "cells": {"database": {"cellsKey": "cells"}, "migrate": {"cellsKey": "cells"}},
    "monitoring": {
        "monitoring": {
            "serviceMonitor": True,
            "prometheusRule": True,
            "dashboards": True,
            "labels": {"release": "prometheus"},
        },
        "networkPolicy": {
            "monitoring": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
        },
    },
    "egress": {
        "networkPolicy": {
            "egress": {
                "enabled": True,
                "to": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"protocol": "TCP", "port": 5432}]}],
            }
        }
    },
    "no network policy and no migration": {"networkPolicy": {"enabled": False}, "migrate": {"enabled": False}},
    "workers": {
        "workers": {
            "billing": {**BILLING, "replicas": 2, "resources": {"limits": {"memory": "512Mi"}}},
            "mail": {
                **BILLING,
                "keda": {"prometheus": "http://prometheus:9090", "topic": "orders", "group": "mail"},
            },
        }
    },
    "placement": {
        "imagePullSecrets": [{"name": "registry"}],
        "image": {"repository": "registry.example/lakelog", "tag": "0.1.0"},
        "server": {
            "nodeSelector": {"kubernetes.io/arch": "arm64"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "podAnnotations": {"team": "data"},
        },
    },
}


def tool(path: Path | str, install: str = "scripts/install --part deploy") -> str:
    found = shutil.which(path)
    if found is None:
        pytest.skip(f"{path} is not installed: {install}")
    return found


@functools.cache
def rendered(name: str) -> list[dict[str, Any]]:
    """Return the resources of the chart with one set of values."""
    base = {"database": {"secretName": "server-db"}, "migrate": {"secretName": "owner-db"}}
    values = {**SETS[name]}
    for key, given in base.items():
        values[key] = {**given, **values.get(key, {})}
    done = template(yaml.safe_dump(values))
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each is not None]


def template(values: str) -> subprocess.CompletedProcess[str]:
    command = [tool(TOOLS / "helm"), "template", "shop", str(CHART), "--namespace", "lakelog", "--values", "-"]
    return subprocess.run(command, input=values, capture_output=True, text=True, timeout=60)


def pods(resources: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the component and the pod of each workload."""
    for each in resources:
        if each["kind"] in ("Deployment", "Job"):
            pod = each["spec"]["template"]
            yield pod["metadata"]["labels"]["app.kubernetes.io/component"], pod["spec"]


@pytest.mark.parametrize("name", SETS)
def test_the_chart_is_valid_for_each_version_of_kubernetes(name: str, tmp_path: Path) -> None:
    python = tool(TOOLS / "venv/bin/python")
    plain = [each for each in rendered(name) if each["kind"] not in CUSTOM]
    assert len(plain) >= 3
    (tmp_path / "resources.yaml").write_text(yaml.safe_dump_all(plain))
    check = (
        "import sys, yaml, kubernetes_validate as k\n"
        "for each in yaml.safe_load_all(open(sys.argv[1])):\n"
        "    for version in sys.argv[2:]: k.validate(each, version, strict=True)\n"
    )
    command = [python, "-c", check, str(tmp_path / "resources.yaml"), *VERSIONS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", SETS)
def test_only_the_migration_has_the_secret_of_the_owner(name: str) -> None:
    for component, pod in pods(rendered(name)):
        assert ("owner-db" in str(pod)) == (component == "migrate"), component
        assert ("server-db" in str(pod)) == (component == "server"), component


@pytest.mark.parametrize("name", SETS)
def test_every_pod_is_hardened(name: str) -> None:
    for component, pod in pods(rendered(name)):
        assert pod["securityContext"]["runAsNonRoot"] is True, component
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_a_pod_has_more_time_than_a_server_needs_to_drain() -> None:
    (pod,) = (pod for component, pod in pods(rendered("several processes")) if component == "server")
    (server,) = pod["containers"]
    pause = server["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = next(int(each["value"]) for each in server["env"] if each["name"] == "LAKELOG_DRAIN_SECONDS")
    assert drain == 60
    assert pod["terminationGracePeriodSeconds"] >= pause + drain + 5
    (policy,) = (each for each in rendered("several processes") if each["kind"] == "NetworkPolicy")
    among_servers = policy["spec"]["ingress"][-1]
    assert among_servers["ports"] == [{"protocol": "TCP", "port": 8480, "endPort": 8483}]
    assert among_servers["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "server"


def test_the_migration_runs_before_the_servers_change() -> None:
    (job,) = (each for each in rendered("defaults") if each["kind"] == "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"


def test_custom_resources_are_rendered_where_they_are_chosen() -> None:
    kinds = {name: {each["kind"] for each in rendered(name)} & CUSTOM for name in SETS}
    chosen = {name: found for name, found in kinds.items() if found}
    assert chosen == {"monitoring": {"ServiceMonitor", "PrometheusRule"}, "workers": {"ScaledObject"}}
    (rules,) = (each for each in rendered("monitoring") if each["kind"] == "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((DEPLOY / "prometheus/lakelog.rules.yaml").read_text())


def test_the_values_of_the_page_are_rendered() -> None:
    (values,) = (text for kind, text in blocks((DOCS / "howto/deploy.md").read_text()) if kind == "yaml")
    done = template(values + "database: {secretName: server-db}\nmigrate: {secretName: owner-db}\n")
    assert 'lakelog_group_lag_messages{topic="orders",group="billing"}' in done.stdout, done.stderr


def test_a_missing_secret_is_named() -> None:
    done = template("{}")
    assert done.returncode != 0
    assert re.search(r"(database|migrate)\.secretName is required", done.stderr)


def test_the_compose_file_gives_the_owner_to_the_migration_only() -> None:
    services = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())["services"]
    assert {"postgres", "migrate", "server-1", "server-2", "worker", "prometheus", "grafana"} == set(services)
    assert {name for name, each in services.items() if "OWNER_PASSWORD" in str(each)} == {"postgres", "migrate"}
    for name in ("migrate", "server-1", "server-2", "worker"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
    for each in services.values():
        for volume in each.get("volumes", []):
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (DEPLOY / "compose" / source).exists(), source
        for other in each.get("depends_on", {}):
            assert other in services
    example = (DEPLOY / "compose/example.env").read_text()
    named = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose/compose.yaml").read_text()))
    assert named == set(re.findall(r"(?m)^(\w+)=", example))


def test_hadolint_finds_nothing_in_the_image_recipe() -> None:
    command = [tool(TOOLS / "venv/bin/hadolint"), str(DEPLOY / "Containerfile")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda unit: unit.stem)
def test_systemd_rates_the_units_as_hardened(unit: Path) -> None:
    command = [tool("systemd-analyze", "apt-get install systemd"), "security", "--offline=yes", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    rating = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert rating is not None, done.stdout + done.stderr
    assert float(rating[1]) <= EXPOSURE


def test_nginx_accepts_the_proxy(tmp_path: Path) -> None:
    nginx, openssl = tool("nginx", "apt-get install nginx-light"), tool("openssl", "apt-get install openssl")
    key, certificate = tmp_path / "lakelog.key", tmp_path / "lakelog.pem"
    made = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=lakelog.example", "-days", "1"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    proxy = (DEPLOY / "nginx/lakelog.conf").read_text().replace("/etc/nginx/", f"{tmp_path}/")
    whole = tmp_path / "nginx.conf"
    whole.write_text(f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{proxy}}}\n")
    done = subprocess.run([nginx, "-t", "-c", str(whole), "-p", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
