#include "tests/support/cases.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "remote/server/listener/clients.h"
#include "remote/wire/wire.h"

/* What the listening process keeps for its clients. */

#define MIB   (UINT64_C(1) << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static struct kept kept;

static int make(uint64_t size, int seals)
{
    int fd = memfd_create("binary", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert(fd >= 0);
    cr_assert_eq(ftruncate(fd, (off_t)size), 0);
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static const unsigned char *name_of(unsigned number)
{
    static unsigned char name[CONTENT_HASH_SIZE];
    memset(name, 0, sizeof(name));
    memcpy(name, &number, sizeof(number));
    return name;
}

static void add(const char *owner, unsigned number, uint64_t size)
{
    bool good = size >= WIRE_BINARY_MIN && size <= WIRE_BINARY_MAX;
    cr_assert_eq(kept_add(&kept, owner, name_of(number), make(size, SEALS)), good);
}

static bool has(const char *owner, unsigned number)
{
    return kept_find(&kept, owner, name_of(number)) >= 0;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

Test(kept, is_one_clients_alone)
{
    add("a", 1, MIB);
    cr_expect(has("a", 1));
    cr_expect(!has("b", 1) && !has("", 1) && !has("a", 2));
    /* Another one's is another. */
    add("b", 1, 2 * MIB);
    cr_expect_eq(kept_check(kept_find(&kept, "a", name_of(1))), MIB);
    cr_expect_eq(kept_check(kept_find(&kept, "b", name_of(1))), 2 * MIB);
}

Test(kept, is_what_nobody_can_change)
{
    static const int seals[] = {0, SEALS & ~F_SEAL_SHRINK, SEALS & ~F_SEAL_GROW,
                                SEALS & ~F_SEAL_WRITE};
    for (size_t i = 0; i < sizeof(seals) / sizeof(seals[0]); i++) {
        int fd = make(MIB, seals[i]);
        cr_expect(!kept_add(&kept, "a", name_of(1), fd), "%x", (unsigned)seals[i]);
        cr_expect(!has("a", 1) && !is_open(fd), "%x", (unsigned)seals[i]);
    }
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    cr_expect(!kept_add(&kept, "a", name_of(1), ends[0]));
    cr_expect(!has("a", 1) && !is_open(ends[0]));
}

Test(kept, has_a_size_that_is_kept)
{
    add("a", 1, WIRE_BINARY_MIN - 1);
    add("a", 2, WIRE_BINARY_MAX + 1);
    add("a", 3, WIRE_BINARY_MIN);
    cr_expect(!has("a", 1) && !has("a", 2) && has("a", 3));
    /* One as large as a client may have takes all others' place. */
    add("a", 4, WIRE_BINARY_MAX);
    cr_expect(!has("a", 3) && has("a", 4));
}

/* What a session that was taken over gave is not in the way of what is right. */
Test(kept, the_newest_of_a_name_stays)
{
    add("a", 1, MIB);
    int before = kept_find(&kept, "a", name_of(1));
    int fd = make(3 * MIB, SEALS);
    cr_assert(kept_add(&kept, "a", name_of(1), fd));
    cr_expect_eq(kept_find(&kept, "a", name_of(1)), fd);
    cr_expect(!is_open(before));
    cr_expect_eq(kept.count, 1);
    cr_expect_eq(kept.bytes, 3 * MIB);
}

Test(kept, what_was_not_used_for_the_longest_goes)
{
    for (unsigned i = 0; i < 4; i++)
        add("a", i, KEPT_OWNER_BYTES / 4);
    cr_expect(has("a", 0)); /* Used: now 1 is the oldest. */
    add("a", 9, KEPT_OWNER_BYTES / 4);
    cr_expect(has("a", 0) && !has("a", 1) && has("a", 2) && has("a", 3) && has("a", 9));
    cr_expect_eq(kept.bytes, KEPT_OWNER_BYTES);
}

Test(kept, a_client_has_so_many_and_no_more)
{
    for (unsigned i = 0; i <= KEPT_OWNER_COUNT; i++)
        add("a", i, MIB);
    cr_expect(!has("a", 0) && has("a", 1) && has("a", KEPT_OWNER_COUNT));
    cr_expect_eq(kept.count, KEPT_OWNER_COUNT);
}

/* One that wants more pays for it with its own, as long as it has some. */
Test(kept, of_all_there_is_so_much_and_no_more)
{
    char owner[] = "a", last[] = "a";
    for (; kept.bytes + KEPT_OWNER_BYTES / 2 <= KEPT_BYTES; owner[0]++) {
        add(owner, 0, KEPT_OWNER_BYTES / 2);
        last[0] = owner[0];
    }
    add(last, 1, KEPT_OWNER_BYTES / 2);
    cr_expect(!has(last, 0) && has(last, 1) && has("a", 0), "its own is not the oldest");
    add("new", 1, KEPT_OWNER_BYTES / 2);
    cr_expect(has("new", 1) && has(last, 1) && has("a", 0) && !has("b", 0), "b's is the oldest");
    cr_expect_leq(kept.bytes, KEPT_BYTES);
}

Test(kept, of_all_there_are_so_many_and_no_more)
{
    char owner[8];
    for (unsigned i = 0; i < KEPT_COUNT; i++) {
        snprintf(owner, sizeof(owner), "%u", i / KEPT_OWNER_COUNT);
        add(owner, i, WIRE_BINARY_MIN);
    }
    add("new", 7, WIRE_BINARY_MIN);
    cr_expect(has("new", 7) && !has("0", 0) && has("0", 1));
    cr_expect_eq(kept.count, KEPT_COUNT);
}
