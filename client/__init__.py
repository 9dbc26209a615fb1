"""A small client for one node: `NodeClient` blocks, `AsyncNodeClient` is for asyncio, `exchange` is their common core.

Used by replica fetchers, transaction markers, mirrors and tests. It knows requests, responses and the leaders of
partitions (`routing`), but neither groups nor retries.
"""
