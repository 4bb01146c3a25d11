"""FAVOR+ inside models of the package transformers. Importing this module registers
attn_implementation="favor".

Example:
    >>> import performer.transformers
    >>> model = AutoModel.from_pretrained(folder, attn_implementation="favor")
"""

try:
    from transformers.masking_utils import AttentionMaskInterface as _NeededHere  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"performer.transformers: needs the package transformers, version 5 or later ({error}); "
        f"pip install 'transformers>=5'"
    ) from error

from performer.transformers._cache import FavorCache  # noqa: E402
from performer.transformers._convert import convert  # noqa: E402
from performer.transformers._patch import patch, unpatch  # noqa: E402
from performer.transformers._pretrained import from_pretrained  # noqa: E402
from performer.transformers._register import register  # noqa: E402

register()

__all__ = ["FavorCache", "convert", "from_pretrained", "patch", "register", "unpatch"]
