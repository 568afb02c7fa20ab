#ifndef RESEAT_STATE_BASE_COMPILER_H
#define RESEAT_STATE_BASE_COMPILER_H

/* Addresses are cut into slots, and offsets, sizes and versions are counted, in 64 bits. */
_Static_assert(sizeof(void *) == 8 && sizeof(long) == 8, "reseat needs addresses of 64 bits");

/* Attributes with one meaning across the tree; gcc and clang both have them. */
#define MUST_CHECK   __attribute__((warn_unused_result))
#define EXPORT       __attribute__((visibility("default")))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))
#define CLEANUP(f)   __attribute__((cleanup(f)))
#define LIKELY(x)    __builtin_expect(!!(x), 1)
#define UNLIKELY(x)  __builtin_expect(!!(x), 0)
#define HOT          __attribute__((hot)) /* in every launch: these lie together */
/* Variables that every launch reads and that hardly ever change lie together, too. */
#define READ_MOSTLY   __attribute__((section(".data.read_mostly")))
#define NOINLINE      __attribute__((noinline))
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#endif
