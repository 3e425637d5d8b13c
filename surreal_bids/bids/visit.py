"""Outputs of one participant in one session, found again by their names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surreal_bids.bids.derivatives import output_names, output_path, sidecar_path


@dataclass(frozen=True)
class VisitOutputs:
    """Where the outputs of one participant in one session are.

    Attributes
    ----------
    root
        The output folder.
    participant, session
        Labels without their prefixes; None where there are no sessions.
    atlas, template
        Their names.
    """

    root: Path
    participant: str
    session: str | None
    atlas: str
    template: str

    @property
    def name(self) -> str:
        """How messages call it: `sub-01` or `sub-01_ses-02`."""
        return f'sub-{self.participant}' + (f'_ses-{self.session}' if self.session else '')

    def path(self, name: str, **labels: str) -> Path:
        """Path of an output; `labels` are those of its entities that a visit does not have."""
        known = {
            'participant': self.participant,
            'session': self.session,
            'atlas': self.atlas,
            'template': self.template,
            **labels,
        }
        entities = output_names()[name].entities
        return output_path(self.root, name, **{e: known[e] for e in entities if e in known})

    def sidecar(self, name: str, **labels: str) -> dict[str, Any]:
        """Content of the sidecar of an output."""
        content = sidecar_path(self.path(name, **labels)).read_text(encoding='utf-8')
        return dict(json.loads(content))
