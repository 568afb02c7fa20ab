#ifndef RESEAT_STATE_BASE_THREADS_TSAN_H
#define RESEAT_STATE_BASE_THREADS_TSAN_H

/*
 * What ThreadSanitizer cannot see by itself: an order between two threads that comes about in
 * another process. A no-op in other builds.
 */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RESEAT_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define RESEAT_TSAN 1
#endif

#ifdef RESEAT_TSAN
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#endif

/** What this thread did so far comes before what others do after tsan_after() of @place. */
static inline void tsan_before(void *place)
{
#ifdef RESEAT_TSAN
    __tsan_release(place);
#else
    (void)place;
#endif
}

static inline void tsan_after(void *place)
{
#ifdef RESEAT_TSAN
    __tsan_acquire(place);
#else
    (void)place;
#endif
}

#endif
