"""Which part of the brain a region belongs to, by its name in any atlas."""

from __future__ import annotations

import re

MEDIAL_TEMPORAL = 'medial temporal'
TEMPORAL, FRONTAL, PARIETAL, OCCIPITAL = 'temporal', 'frontal', 'parietal', 'occipital'
CINGULATE, INSULA = 'cingulate', 'insular'
BASAL_GANGLIA, THALAMUS = 'basal ganglia', 'thalamus'
BRAIN_STEM, CEREBELLUM, WHITE_MATTER = 'brain stem', 'cerebellum', 'deep white matter'

_PARTS = (
    (CEREBELLUM, r'cerebell|verm|cblm'),
    (BRAIN_STEM, r'brain ?stem|\bpons\b|medulla|midbrain|ventral ?dc|\bscp\b'),
    (MEDIAL_TEMPORAL, r'hippo|amyg|entorh|parahip|\bphg\b|perirhin|subicul|\bca[1-4]\b|uncus'),
    (INSULA, r'insul|\bins\b'),
    (CINGULATE, r'cingul|callosal|isthmus'),
    (PARIETAL, r'precuneus'),
    # Before the temporal lobe: the occipital fusiform gyrus. Before the frontal: the lingual one.
    (OCCIPITAL, r'occip|cuneus|calcarine|lingual|\boc (middle|sup)'),
    (FRONTAL, r'triang|pars ?(oper|orb|tri)|frontal operc'),
    # Before the temporal lobe: the angular gyrus of Destrieux is a "Pariet inf".
    (PARIETAL, r'pariet|angular|supramarg|postcentral|jensen'),
    (TEMPORAL, r'tempo|\btemp|oc temp|fusif|bankssts|heschl|planum|collat'),
    (FRONTAL, r'front|central|orbit|rectus|motor|operc|olfact'),
    (
        BASAL_GANGLIA,
        r'caud|putamen|\b[lr]?put\b|pallid|\b[lr]?pal\b|accumb|basal ?forebrain|striat',
    ),
    (THALAMUS, r'thal'),
    (WHITE_MATTER, r'callos|\bcc\b|fornix|capsule|white ?matter|\bwm\b'),
)
"""Words of the parts, in the order in which they are looked for; the first decides."""


def part_of_brain(region: str) -> str | None:
    """Return the lobe or the deep structure that a region belongs to; None if it is not known.

    Parameters
    ----------
    region
        Name of a region, as in MUSE or an atlas of FreeSurfer, ENIGMA or AAL.

    Examples
    --------
    >>> part_of_brain('Left hippocampus'), part_of_brain('rh_superiorfrontal_thickness')
    ('medial temporal', 'frontal')
    >>> part_of_brain('region_17')
    """
    words = ' '.join(re.findall(r'[a-z]+|\d+', region.lower()))
    for part, pattern in _PARTS:
        if re.search(pattern, words):
            return part
    return None
