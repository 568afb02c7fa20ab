#include <string.h>
#include <xxhash.h>

#include "stream/service/service.h"

/*
 * The payloads that the last stream of a kernel ended with, for the next one: it need not learn
 * them again. Clients write to the area from which they are taken, so each client has only its own;
 * and a worker takes them for no more than a beginning.
 */

void learnt_find(struct supervisor *supervisor, const struct service *service, const char *whose,
                 const struct stream_open *open)
{
    const struct stream_text *texts[] = {&open->description, &open->source, &open->device};
    uint64_t key = XXH3_64bits(whose, strlen(whose));
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        key = XXH3_64bits_withSeed(texts[i]->bytes, texts[i]->size, key);
    supervisor->learnt = &service->table->learnt[key % SERVICE_LEARNT_MAX];
    supervisor->learnt_key = key;
}

void learnt_give(const struct supervisor *supervisor)
{
    if (atomic_load(&supervisor->learnt->key) == supervisor->learnt_key)
        for (size_t i = 0; i < STREAM_PAYLOADS; i++)
            atomic_store(&supervisor->area->header->best[i],
                         atomic_load(&supervisor->learnt->payloads[i]));
}

void learnt_keep(const struct supervisor *supervisor)
{
    const _Atomic uint32_t *best = supervisor->area->header->best;
    struct service_learnt *learnt = supervisor->learnt;
    for (size_t i = 0; i < STREAM_PAYLOADS; i++)
        if (atomic_load(&best[i]) == 0)
            return; /* It never had any. */
    atomic_store(&learnt->key, 0);
    for (size_t i = 0; i < STREAM_PAYLOADS; i++)
        atomic_store(&learnt->payloads[i], atomic_load(&best[i]));
    atomic_store(&learnt->key, supervisor->learnt_key);
}
