"""What a release contains and asks for, as CycloneDX: https://cyclonedx.org/specification/overview/.

Versions are exact where the release contains a package: those of the functions. What pip installs beside the wheel is
in ranges, and has no version here: an index's answer of today would be another one tomorrow.
"""

import tomllib
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement

from ticketlock_local.errors import ReleaseError
from ticketlock_local.release.commit import Commit

_SHA256 = "--hash=sha256:"


def written(source: Path, version: str, commit: Commit) -> str:
    """The bill of materials of a commit.

    Args:
        source: the folder with its files.
        version: of the package.
        commit: gives the time and the serial number, so that another build has the same.
    """
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    product = _package("ticketlock", version)
    product.licenses.add(DisjunctiveLicense(id=project["license"]))
    parts = [*_asked_for(project), *_contained(source)]
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{product.purl}?vcs={commit.sha}"),
        metadata=BomMetaData(component=product, timestamp=datetime.fromtimestamp(commit.time_s, UTC)),
        components=parts,
    )
    bom.register_dependency(product, parts)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def check(text: str) -> None:
    """Compare a bill of materials with the schema.

    Raises:
        ReleaseError: it does not fit.
    """
    # Here: it compiles forty grammars, for two seconds of every worker of the tests.
    from cyclonedx.validation.json import JsonStrictValidator

    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ReleaseError(f"the SBOM does not fit its schema: {error}")


def _asked_for(project: Mapping[str, Any]) -> Iterator[Component]:
    """What pip installs with the package and with each extra."""
    for extra, requirements in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        for requirement in requirements:
            part = _package(Requirement(requirement).name, None, reference=f"{extra}:{requirement}")
            part.scope = ComponentScope.OPTIONAL if extra else ComponentScope.REQUIRED
            part.properties.add(Property(name="ticketlock:requirement", value=requirement))
            if extra:
                part.properties.add(Property(name="ticketlock:extra", value=extra))
            yield part


def _contained(source: Path) -> Iterator[Component]:
    """The packages in the functions' code."""
    for line in (source / "functions" / "requirements.txt").read_text().replace("\\\n", " ").splitlines():
        if line and not line.startswith("#"):
            pin, *hashes = line.split()
            name, _, version = pin.partition("==")
            part = _package(name, version)
            part.scope = ComponentScope.REQUIRED
            part.hashes.update(
                HashType(alg=HashAlgorithm.SHA_256, content=each.removeprefix(_SHA256)) for each in hashes
            )
            part.properties.add(Property(name="ticketlock:in", value="the functions' code"))
            yield part


def _package(name: str, version: str | None, reference: str | None = None) -> Component:
    purl = PackageURL("pypi", None, name.lower(), version)
    return Component(
        name=name, version=version, type=ComponentType.LIBRARY, purl=purl, bom_ref=reference or purl.to_string()
    )
