#include <arpa/inet.h>
#include <errno.h>
#include <sys/un.h>

#include <linux/vm_sockets.h>

#include "remote/link/preauth.h"
#include "tests/support/leaks.h"

TestSuite(preauth, .fini = leaks_check, .timeout = 60);

static uint64_t leaves;

/** The id of who comes at that time; 0: turned away. @leaves: who had to go. */
static uint64_t enter(struct preauth *preauth, const char *from, uint64_t now_ns)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    const struct sockaddr *address = (const struct sockaddr *)&v4;
    uint64_t id = 0;

    if (inet_pton(AF_INET, from, &v4.sin_addr) != 1) {
        cr_assert_eq(inet_pton(AF_INET6, from, &v6.sin6_addr), 1, "%s", from);
        address = (const struct sockaddr *)&v6;
    }
    leaves = 0;
    int error = preauth_enter(preauth, address, now_ns, &id, &leaves);
    cr_expect(error == 0 || (error == -EBUSY && id == 0 && leaves == 0));
    cr_expect_leq(preauth->count, PREAUTH_MAX);
    return id;
}

static uint64_t enter_numbered(struct preauth *preauth, unsigned number, uint64_t now_ns)
{
    char from[32];

    snprintf(from, sizeof(from), "10.0.%u.%u", number / 256, number % 256);
    return enter(preauth, from, now_ns);
}

Test(preauth, one_place_takes_its_own_room_only)
{
    struct preauth preauth = {.count = 0};

    for (unsigned i = 0; i < 1000; i++)
        cr_expect_eq(enter(&preauth, "192.0.2.1", 5) != 0, i < PREAUTH_SOURCE_MAX);
    cr_expect_eq(preauth.count, PREAUTH_SOURCE_MAX);
    cr_expect_neq(enter(&preauth, "192.0.2.2", 5), 0);
    cr_expect_eq(leaves, 0);
}

Test(preauth, who_had_its_time_gives_way_to_its_neighbours)
{
    struct preauth preauth = {.count = 0};
    uint64_t first = enter(&preauth, "192.0.2.1", 0), second = enter(&preauth, "192.0.2.1", 10);

    for (unsigned i = 2; i < PREAUTH_SOURCE_MAX; i++)
        cr_assert_neq(enter(&preauth, "192.0.2.1", 20), 0);
    cr_expect_eq(enter(&preauth, "192.0.2.1", PREAUTH_TURN_NS - 1), 0);
    cr_expect_neq(enter(&preauth, "192.0.2.1", PREAUTH_TURN_NS), 0);
    cr_expect_eq(leaves, first);
    cr_expect_eq(enter(&preauth, "192.0.2.1", PREAUTH_TURN_NS), 0);
    cr_expect_neq(enter(&preauth, "192.0.2.1", PREAUTH_TURN_NS + 10), 0);
    cr_expect_eq(leaves, second);
    cr_expect_eq(preauth.count, PREAUTH_SOURCE_MAX);
}

Test(preauth, of_a_full_house_those_who_are_most_give_way_at_once)
{
    struct preauth preauth = {.count = 0};
    uint64_t first = 0;

    for (unsigned i = 0; i < PREAUTH_MAX; i++) {
        uint64_t id = enter_numbered(&preauth, i / PREAUTH_SOURCE_MAX, 0);
        first = first ? first : id;
        cr_assert_neq(id, 0);
    }
    cr_expect_neq(enter(&preauth, "192.0.2.1", 1), 0);
    cr_expect_eq(leaves, first);
    /* Until all have as much: then only time makes room. */
    unsigned entered = 0;
    while (enter(&preauth, "192.0.2.1", 1) && entered < PREAUTH_MAX)
        entered++;
    cr_expect_leq(entered, PREAUTH_SOURCE_MAX);
    cr_expect_eq(preauth.count, PREAUTH_MAX);
}

Test(preauth, a_flood_from_everywhere_is_bounded_and_ends_with_its_time)
{
    struct preauth preauth = {.count = 0};
    unsigned entered = 0;

    for (unsigned i = 0; i < 10000; i++)
        entered += enter_numbered(&preauth, i, 7) != 0;
    cr_expect_eq(entered, PREAUTH_MAX);
    cr_expect_neq(enter(&preauth, "192.0.2.1", 7 + PREAUTH_TURN_NS), 0);
    cr_expect_neq(leaves, 0);
    cr_expect_eq(preauth.count, PREAUTH_MAX);
}

Test(preauth, who_leaves_makes_room)
{
    struct preauth preauth = {.count = 0};
    uint64_t ids[PREAUTH_SOURCE_MAX];

    for (unsigned i = 0; i < PREAUTH_SOURCE_MAX; i++)
        ids[i] = enter(&preauth, "192.0.2.1", 0);
    cr_expect_eq(enter(&preauth, "192.0.2.1", 1), 0);
    preauth_leave(&preauth, ids[3]);
    preauth_leave(&preauth, ids[3]);
    preauth_leave(&preauth, 12345);
    preauth_leave(&preauth, 0);
    cr_expect_eq(preauth.count, PREAUTH_SOURCE_MAX - 1);
    cr_expect_neq(enter(&preauth, "192.0.2.1", 1), 0);
    cr_expect_eq(leaves, 0);
    for (unsigned i = 0; i < PREAUTH_SOURCE_MAX; i++)
        if (i != 3)
            preauth_leave(&preauth, ids[i]);
    cr_expect_eq(preauth.count, 1);
}

Test(preauth, a_place_is_what_one_host_may_choose_from)
{
    const struct sockaddr_vm machines[] = {{.svm_family = AF_VSOCK, .svm_cid = 3, .svm_port = 1},
                                           {.svm_family = AF_VSOCK, .svm_cid = 3, .svm_port = 2},
                                           {.svm_family = AF_VSOCK, .svm_cid = 4}};
    const struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct preauth preauth = {.count = 0};
    uint64_t id;

    (void)enter(&preauth, "2001:db8::1", 0);
    (void)enter(&preauth, "2001:db8::ffff:1", 0);
    (void)enter(&preauth, "2001:db8:0:1::1", 0);
    (void)enter(&preauth, "192.0.2.1", 0);
    (void)enter(&preauth, "::ffff:192.0.2.1", 0);
    cr_assert_eq(preauth.count, 5);
    cr_expect_arr_eq(preauth.strangers[0].source, preauth.strangers[1].source, 10);
    cr_expect_arr_neq(preauth.strangers[0].source, preauth.strangers[2].source, 10);
    cr_expect_arr_eq(preauth.strangers[3].source, preauth.strangers[4].source, 10);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(
            preauth_enter(&preauth, (const struct sockaddr *)&machines[i], 0, &id, &leaves), 0);
    cr_assert_eq(preauth_enter(&preauth, (const struct sockaddr *)&local, 0, &id, &leaves), 0);
    cr_expect_arr_eq(preauth.strangers[5].source, preauth.strangers[6].source, 10);
    cr_expect_arr_neq(preauth.strangers[5].source, preauth.strangers[7].source, 10);
    cr_expect_arr_neq(preauth.strangers[7].source, preauth.strangers[8].source, 10);
}
