"""Records of BERT's pre-training that other programs wrote: into our shards, and back.

1. `dataprep.imports.tfrecord` and `dataprep.imports.hdf5` read files and yield a `Record` each.
2. `dataprep.imports.records` makes a `Sample` of a record, or refuses it.
3. `import_records` writes a shard a file; `export_hdf5` writes HDF5 of variable length.
"""

from dataprep.imports.hdf5 import export_hdf5
from dataprep.imports.importing import (
    IMPORT_FORMATS,
    UNKNOWN_DOCUMENTS,
    ImportConfig,
    import_file,
    import_records,
    import_widths,
)
from dataprep.imports.records import Widths

__all__ = [
    "IMPORT_FORMATS",
    "UNKNOWN_DOCUMENTS",
    "ImportConfig",
    "Widths",
    "export_hdf5",
    "import_file",
    "import_records",
    "import_widths",
]
