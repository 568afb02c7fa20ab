#include "state/driver/answers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Offset of the answer: aligned for any number, as drivers' own would be. */
static size_t answers_value_at(size_t key_size)
{
    return (key_size + sizeof(uint64_t) - 1) & ~(sizeof(uint64_t) - 1);
}

static bool answers_matches(const struct answer *answer, uint32_t query, const void *key,
                            size_t key_size)
{
    return answer->query == query && answer->key_size == key_size &&
           (key_size == 0 || memcmp(answer->bytes, key, key_size) == 0);
}

/* Search the list from @first up to @end. */
static const struct answer *answers_search(const struct answer *first, const struct answer *end,
                                           uint32_t query, const void *key, size_t key_size)
{
    for (const struct answer *answer = first; answer != end; answer = answer->next)
        if (answers_matches(answer, query, key, key_size))
            return answer;
    return NULL;
}

const void *answers_find(const struct answers *answers, uint32_t query, const void *key,
                         size_t key_size, size_t *ret_size)
{
    const struct answer *answer = answers_search(
        atomic_load_explicit(&answers->first, memory_order_acquire), NULL, query, key, key_size);
    if (!answer)
        return NULL;
    *ret_size = answer->size;
    return answer->bytes + answers_value_at(answer->key_size);
}

const void *answers_add(struct answers *answers, uint32_t query, const void *key, size_t key_size,
                        const void *value, size_t size, size_t *ret_size)
{
    struct answer *answer = malloc(sizeof(*answer) + answers_value_at(key_size) + size);
    if (!answer)
        return NULL;
    *answer = (struct answer){.query = query, .key_size = (uint32_t)key_size, .size = size};
    if (key_size)
        memcpy(answer->bytes, key, key_size);
    if (size)
        memcpy(answer->bytes + answers_value_at(key_size), value, size);
    const struct answer *seen = NULL;
    answer->next = atomic_load_explicit(&answers->first, memory_order_acquire);
    do {
        const struct answer *other = answers_search(answer->next, seen, query, key, key_size);
        if (other) {
            free(answer);
            *ret_size = other->size;
            return other->bytes + answers_value_at(other->key_size);
        }
        seen = answer->next;
    } while (!atomic_compare_exchange_weak_explicit(&answers->first, &answer->next, answer,
                                                    memory_order_acq_rel, memory_order_acquire));
    *ret_size = answer->size;
    return answer->bytes + answers_value_at(answer->key_size);
}

void answers_finish(struct answers *answers)
{
    struct answer *answer = atomic_exchange(&answers->first, NULL);
    while (answer) {
        struct answer *next = answer->next;
        free(answer);
        answer = next;
    }
}
