# Sourced: options of the app in the tests of containers. They do not count for singularity/tested.sh,
# no more than the code of the app does: test_boutiques.py tries them with every change.
QUICK=(--template-resolution 3)
TRAINING=(--n-patterns 2 --ortho 0.4 --repetitions 2 --iterations 100)
