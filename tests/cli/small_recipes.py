"""Recipes of models that train in a second, one for each kind of data."""

TINY = """
[data]
task = "protein"
train = "data/proteins/valid.fasta.gz"
valid = "data/proteins/test.fasta.gz"
length = 32
pad_multiple = 0

[model]
layers = 2
dim = 16
heads = 2
ff_dim = 32
positions = "rotary"
dropout = 0.1

[model.attention]
features = 8
redraw_interval = 5

[train]
steps = 12
batch = 2
log_every = 1
valid_every = 4
valid_batches = 2
checkpoint_every = 3
keep_last = 3
"""


def one_layer(
    data: str, *, model: str = "", attention: str = "features = 8", train: str = ""
) -> str:
    """One narrow layer on `data`, two steps without validation; lines of `train` come instead."""
    own = {"steps": "2", "batch": "2", "valid_every": "0"}
    own |= dict(line.split(" = ") for line in train.splitlines())
    steps = "\n".join(f"{key} = {value}" for key, value in own.items())
    return (
        f"[data]\n{data}\n"
        f"[model]\nlayers = 1\ndim = 16\nheads = 2\nff_dim = 16\n{model}\n"
        f"[model.attention]\n{attention}\n"
        f"[train]\n{steps}\n"
    )


def text_data(path: object) -> str:
    return f'task = "text"\ntrain = "{path}"\nlength = 32'


def pixel_data(path: object, length: int) -> str:
    return f'task = "pixels"\ntrain = "{path}"\nlength = {length}\npad_multiple = 0'


def labelled_rows(folder: object) -> str:
    """A classifier of the rows of train.tsv in that folder."""
    data = f'task = "classify"\ntrain = "{folder}/train.tsv"\nvalid = "{folder}/train.tsv"'
    return one_layer(
        f"{data}\nlength = 32",
        model='head = "classify"\ncausal = false',
        train="steps = 4\nvalid_every = 2",
    )
