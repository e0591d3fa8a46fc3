"""The schedule primitives, one family per file. Importing them registers them."""

from .ahead import compute_ahead
from .annotate import annotate, bind, parallel, serial, set_scope, unannotate, unroll, vectorize
from .cached_copies import cache_read, cache_write
from .distinguish import distinguish_reads, distinguish_updates
from .einsum import pad_einsum
from .factor import hoist_factor
from .index import cache_index
from .initial import merge_reduction
from .inline import compute_inline, reverse_compute_inline
from .iterations import reorder_block_iter_var, transform_block_layout
from .loops import fuse, reorder, split, tile
from .nest import add_unit_loop, fission, merge
from .online_softmax import online_softmax
from .pack import pack, transform_layout
from .padding import decompose_padding
from .partial import split_reduction
from .partition import loop_partition
from .pipeline import double_buffer, pipeline
from .place import compute_at, reverse_compute_at
from .prefetch import prefetch
from .query import get_block, get_consumers, get_loops, get_producers, work_on
from .reduction import decompose_reduction, fuse_reduction_epilogue, rfactor
from .reindex import reindex, reindex_cache_read, reindex_cache_write
from .rolling_buffer import rolling_buffer
from .sample import (
    sample_categorical,
    sample_compute_location,
    sample_partitioned_tile,
    sample_perfect_tile,
    sample_tile,
)
from .stage import read_at, write_at
from .statements import make_blocks
from .storage import storage_align
from .stream import stream
from .swizzle import swizzle
from .unit import blockize, tensorize
from .update import cache_inplace
from .variance import online_variance
from .winograd import winograd

__all__ = [
    "add_unit_loop",
    "annotate",
    "bind",
    "blockize",
    "cache_index",
    "cache_inplace",
    "cache_read",
    "cache_write",
    "compute_ahead",
    "compute_at",
    "compute_inline",
    "decompose_padding",
    "decompose_reduction",
    "distinguish_reads",
    "distinguish_updates",
    "double_buffer",
    "fission",
    "fuse",
    "fuse_reduction_epilogue",
    "get_block",
    "get_consumers",
    "get_loops",
    "get_producers",
    "hoist_factor",
    "loop_partition",
    "make_blocks",
    "merge",
    "merge_reduction",
    "online_softmax",
    "online_variance",
    "pack",
    "pad_einsum",
    "parallel",
    "pipeline",
    "prefetch",
    "read_at",
    "reindex",
    "reindex_cache_read",
    "reindex_cache_write",
    "reorder",
    "reorder_block_iter_var",
    "reverse_compute_at",
    "reverse_compute_inline",
    "rfactor",
    "rolling_buffer",
    "sample_categorical",
    "sample_compute_location",
    "sample_partitioned_tile",
    "sample_perfect_tile",
    "sample_tile",
    "serial",
    "set_scope",
    "split",
    "split_reduction",
    "storage_align",
    "stream",
    "swizzle",
    "tensorize",
    "tile",
    "transform_block_layout",
    "transform_layout",
    "unannotate",
    "unroll",
    "vectorize",
    "winograd",
    "work_on",
    "write_at",
]
