"""The model that a scan was made with, loaded again and checked."""

from __future__ import annotations

from ffmem.errors import StoreError
from ffmem.models.fingerprint import weights_digest
from ffmem.models.language_model import LanguageModel
from ffmem.models.loading import DTYPES, load, resolve_device
from ffmem.store.scan_store import ScanStore


def scanned_model(
    store: ScanStore,
    device: str = "auto",
    name: str | None = None,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    trust_remote_code: bool = False,
) -> LanguageModel:
    """Load the model that a store was made with; refuses one whose weights are different.

    `name` says where it is found now, if not under its own name; under its own name it is loaded
    at the scan's revision, unless another is given. `dtype` auto is the scan's own on a GPU. On a
    CPU a model that was scanned in 16 bits runs in float32, which is faster there and holds the
    same weights.
    """
    key = store.manifest.key.model
    if dtype == "auto":
        dtype = "float32" if resolve_device(device).type == "cpu" else key["dtype"]
    if revision is None and name in (None, key["name"]):
        revision = key["revision"]
    model = load(
        name or key["name"],
        revision=revision,
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
    )
    if weights_digest(model.model, DTYPES[key["dtype"]]) != key["weights"]:
        raise StoreError(
            f"the weights of {model.name} ({dtype}) are not those that {store.folder.root} was "
            f"scanned with ({key['dtype']}); give the model that was scanned, or scan again"
        )
    return model
