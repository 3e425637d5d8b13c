"""Make the environment of the image smaller: run once, by the Dockerfile, after installing.

Removed are the test suites of the packages, the headers of torch without CUDA and, where antspyx
is of the kind that links ITK into each of its modules anew (0.4, the newest for ARM; 15 MB a
module), the modules that this app never calls. Bytecode is kept only of what the app imports, and
is valid whatever the clock says.
"""

from __future__ import annotations

import importlib
import py_compile
import re
import shutil
import sys
import sysconfig
from pathlib import Path

IMPORTED = (
    'ants',
    'bids',
    'deepbet',
    'jinja2',
    'matplotlib.backends.backend_agg',
    'matplotlib.backends.backend_svg',
    'matplotlib.pyplot',
    'nibabel',
    'nilearn.image',
    'nilearn.plotting',
    'nipype.interfaces.base',
    'nipype.pipeline.engine',
    'nipype.pipeline.plugins',
    'pandas',
    'pip._internal.cli.main',
    'safetensors.torch',
    'scipy.ndimage',
    'scipy.optimize',
    'scipy.stats',
    'sklearn.linear_model',
    'sklearn.svm',
    'statsmodels.regression.mixed_linear_model',
    'torch',
    'tqdm',
    'yaml',
)
"""What the app imports of its dependencies."""

NOT_CALLED = (
    'Atropos',
    'CreateTiledMosaic',
    'DenoiseImage',
    'KellyKapowski',
    'LabelGeometryMeasures',
    'N3BiasFieldCorrection',
    'N4BiasFieldCorrection',
    'SmoothImage',
    'TileImages',
    'addNoiseToImage',
    'antiAlias',
    'antsImageAugment',
    'antsJointFusion',
    'antsRegistration',
    'fitBsplineDisplacementField',
    'fitBsplineDisplacementFieldToScatteredData',
    'fitBsplineObjectToScatteredData',
    'fitThinPlateSplineDisplacementFieldToScatteredData',
    'hausdorffDistance',
    'histogramMatchImage',
    'sccaner',
    'simulateDisplacementField',
    'weingartenImageCurvature',
)
"""Modules of ants.lib without which transforms of ITK can be read."""


def remove_tests(packages: Path) -> None:
    """Delete test suites of the packages."""
    for folder in packages.glob('**/tests'):
        shutil.rmtree(folder)


def slim_torch(torch: Path) -> None:
    """Delete what torch is tested with, and headers unless it can compile for CUDA."""
    shutil.rmtree(torch / 'test', ignore_errors=True)
    for program in (torch / 'bin').glob('test_*'):
        program.unlink()
    if not any(torch.glob('lib/libtorch_cuda*')):
        shutil.rmtree(torch / 'include', ignore_errors=True)


def remove_ants_modules(library: Path) -> None:
    """Delete modules of ants.lib that are not called, and the lines that import them."""
    index = library / '__init__.py'
    if not index.is_file():
        return
    for name in NOT_CALLED:
        for module in library.glob(f'{name}.*.so'):
            module.unlink()
    names = '|'.join(NOT_CALLED)
    text = re.sub(rf'^from \.({names}) import \*$', '', index.read_text(), flags=re.MULTILINE)
    index.write_text(text)


def compile_imported() -> None:
    """Import what the app needs, and write bytecode of all that this loads."""
    for name in IMPORTED:
        importlib.import_module(name)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for module in list(sys.modules.values()):
        path = getattr(module, '__file__', None)
        if path and path.endswith('.py') and path.startswith(sys.prefix):
            py_compile.compile(path, invalidation_mode=mode)


if __name__ == '__main__':
    site_packages = Path(sysconfig.get_path('purelib'))
    remove_tests(site_packages)
    slim_torch(site_packages / 'torch')
    remove_ants_modules(site_packages / 'ants' / 'lib')
    compile_imported()
