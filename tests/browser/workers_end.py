"""Waiting, in a page's Python, until the workers of models that are gone have ended."""

WORKERS_END = '''
import asyncio, gc
from halfbyte.core.backends import workers

async def workers_end():
    """Return when they have, which also frees their memory; later tests start without them."""
    gc.collect()
    for _ in range(1000):
        if not workers._crews and not workers._ended:
            return
        await asyncio.sleep(0.01)
    raise TimeoutError(f"{list(workers._crews)}, {len(workers._ended)} workers have not ended")
'''
