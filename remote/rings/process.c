#include "remote/rings/process.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#include "state/base/compiler.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t *_Atomic mark; /* on a page that a child gets as zeroes */
static _Atomic uint64_t last;          /* that was given; a child goes on from there */

static void process_make(void)
{
    void *page =
        mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return;
    if (madvise(page, sizeof(uint64_t), MADV_WIPEONFORK) == 0)
        atomic_store(&mark, page);
    else
        munmap(page, sizeof(uint64_t));
}

static uint64_t process_begin(void)
{
    uint64_t none = 0;
    pthread_once(&once, process_make);
    _Atomic uint64_t *here = atomic_load(&mark);
    if (!here)
        return 0;
    uint64_t mine = atomic_fetch_add(&last, 1) + 1;
    return atomic_compare_exchange_strong(here, &none, mine) ? mine : none;
}

uint64_t process_mark(void)
{
    _Atomic uint64_t *here = atomic_load_explicit(&mark, memory_order_acquire);
    uint64_t number = here ? atomic_load_explicit(here, memory_order_relaxed) : 0;
    return LIKELY(number != 0) ? number : process_begin();
}
