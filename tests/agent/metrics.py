#!/usr/bin/python3
"""Check what is served as metrics, and that documents, alerts and dashboard only name what is there.

  metrics.py OPENMETRICS TEXT ROOT

OPENMETRICS and TEXT are files with the two formats, an agent's or a device server's; ROOT is the project's folder.
"""

import json
import re
import subprocess
import sys

import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

SERVERS = "reseat_server_"
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""]}
MOST_SERIES = 5000  # of 64 devices, and the users that are shown


def fail(text):
    sys.exit(f"metrics.py: {text}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def sample_names(families):
    return {family.name + suffix: family for family in families for suffix in SUFFIXES[family.type]}


def check_expression(where, expression, names, of_server):
    """Every metric of an expression is served, with each label that it selects."""
    found = re.findall(r"\breseat_\w+", re.sub(r'"[^"]*"', '""', expression))
    if found and any(name.startswith(SERVERS) != of_server for name in found):
        return  # It is checked where the other one's metrics are.
    if not found:
        fail(f"{where} names no metric: {expression}")
    for name in found:
        if name not in names:
            fail(f"{where} names {name}, which is not served")
    for name, selector in re.findall(r"\b(reseat_\w+)\{([^}]*)\}", expression):
        labels = {label for sample in names[name].samples for label in sample.labels}
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector):
            if names[name].samples and label not in labels:
                fail(f"{where}: {name} has no label {label}, only {sorted(labels)}")


def check_page(text, families, of_server):
    """The page's table has what is served, and nothing else."""
    served = {f"| `{family.name}{SUFFIXES[family.type][0] if family.type == 'counter' else ''}` | {family.type} | "
              f"{family.documentation} |" for family in families}
    shown = {line for line in text.splitlines() if line.startswith("| `reseat_") and
             line.startswith(f"| `{SERVERS}") == of_server}
    for line in sorted(served - shown):
        print(f"doc/metrics.md lacks: {line}")
    for line in sorted(shown - served):
        print(f"doc/metrics.md has, but it is not served: {line}")
    if served != shown:
        fail("doc/metrics.md is not what is served")


def check_files(root, names, of_server):
    """Alerts and dashboard only name what an agent serves, or a device server."""
    rules = f"{root}/monitoring/reseat.rules.yml"
    if subprocess.run(["promtool", "check", "rules", rules], check=False).returncode:
        fail("promtool does not accept the alerts")
    for group in yaml.safe_load(read(rules))["groups"]:
        for rule in group["rules"]:
            check_expression(rule["alert"], rule["expr"], names, of_server)
    dashboard = json.loads(read(f"{root}/monitoring/dashboard.json"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            check_expression(panel["title"], target["expr"], names, of_server)


def main():
    opened, text, root = sys.argv[1:]
    families = list(text_string_to_metric_families(read(opened)))
    names = sample_names(families)
    if sum(len(family.samples) for family in families) > MOST_SERIES:
        fail("too many series")
    for family in families:
        if not family.name.startswith("reseat_") or not family.documentation:
            fail(f"{family.name} is no metric of ours, or is not explained")
    checked = subprocess.run(["promtool", "check", "metrics"], input=read(text), text=True, check=False)
    if checked.returncode:
        fail("promtool does not accept the text format")
    of_server = families[0].name.startswith(SERVERS)
    check_files(root, names, of_server)
    check_page(read(f"{root}/doc/metrics.md"), families, of_server)


if __name__ == "__main__":
    main()
