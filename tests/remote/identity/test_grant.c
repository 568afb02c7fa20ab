#include <errno.h>

#include "remote/identity/grant.h"
#include "tests/support/leaks.h"

TestSuite(grant, .fini = leaks_check, .timeout = 60);

static int parse(const char *text, struct grant *ret)
{
    return grant_parse(text, strlen(text), ret);
}

Test(grant, what_is_written_is_read)
{
    struct grant grant = GRANT_ALL, read;
    char text[GRANT_TEXT_MAX], reason[GRANT_REASON_MAX];

    grant_format(&grant, text);
    cr_expect_str_eq(text, "reseat-grant-1 devices=* memory=- sessions=- share=100");
    cr_assert_eq(parse(text, &read), 0);
    cr_expect_eq(read.device_count, 0);
    cr_expect_eq(read.memory, GRANT_UNLIMITED_MEMORY);
    cr_expect_eq(read.sessions, GRANT_UNLIMITED_SESSIONS);
    cr_expect_eq(read.share, GRANT_SHARE);
    cr_expect(grant_has_device(&read, "anything"));

    cr_assert_eq(grant_set_devices(&grant, "gpu0,cpu1", reason), 0);
    grant.memory = (8ull << 30) + 1024;
    grant.sessions = 4096;
    grant.share = 1000;
    grant_format(&grant, text);
    cr_expect_str_eq(text,
                     "reseat-grant-1 devices=gpu0,cpu1 memory=8388609KiB sessions=4096 share=1000");
    cr_assert_eq(parse(text, &read), 0);
    cr_expect_eq(read.device_count, 2);
    cr_expect_eq(read.memory, (8ull << 30) + 1024);
    cr_expect_eq(read.sessions, 4096);
    cr_expect_eq(read.share, 1000);
    cr_expect(grant_has_device(&read, "gpu0"));
    cr_expect(grant_has_device(&read, "cpu1"));
    cr_expect_not(grant_has_device(&read, "gpu"));
    cr_expect_not(grant_has_device(&read, "gpu00"));
    cr_expect_not(grant_has_device(&read, ""));
}

/* What two people could read in two ways, or one server takes and another does not. */
Test(grant, there_is_one_way_to_write_it)
{
    static const char *const rows[] = {
        "",
        "reseat-grant-1",
        "reseat-grant-2 devices=* memory=- sessions=- share=100",
        "reseat-grant-1 devices=* memory=- share=100",
        "reseat-grant-1 devices=* memory=- sessions=- share=100 ",
        "reseat-grant-1 devices=* memory=- sessions=- share=100 more=1",
        "reseat-grant-1 devices=* memory=- sessions=- share=100\n",
        " reseat-grant-1 devices=* memory=- sessions=- share=100",
        "reseat-grant-1  devices=* memory=- sessions=- share=100",
        "reseat-grant-1 memory=- devices=* sessions=- share=100",
        "reseat-grant-1 devices= memory=- sessions=- share=100",
        "reseat-grant-1 devices=gpu0, memory=- sessions=- share=100",
        "reseat-grant-1 devices=,gpu0 memory=- sessions=- share=100",
        "reseat-grant-1 devices=*,gpu0 memory=- sessions=- share=100",
        "reseat-grant-1 devices=gpu0,gpu0 memory=- sessions=- share=100",
        "reseat-grant-1 devices=-gpu0 memory=- sessions=- share=100",
        "reseat-grant-1 devices=gpu/0 memory=- sessions=- share=100",
        "reseat-grant-1 devices=gpu\x1b memory=- sessions=- share=100",
        "reseat-grant-1 devices=* memory=0 sessions=- share=100",
        "reseat-grant-1 devices=* memory=0B sessions=- share=100",
        "reseat-grant-1 devices=* memory= sessions=- share=100",
        "reseat-grant-1 devices=* memory=1024MiB sessions=- share=100",
        "reseat-grant-1 devices=* memory=01GiB sessions=- share=100",
        "reseat-grant-1 devices=* memory=+1GiB sessions=- share=100",
        "reseat-grant-1 devices=* memory=18446744073709551615B sessions=- share=100",
        "reseat-grant-1 devices=* memory=99999999999999999999TiB sessions=- share=100",
        "reseat-grant-1 devices=* memory=- sessions=0 share=100",
        "reseat-grant-1 devices=* memory=- sessions= share=100",
        "reseat-grant-1 devices=* memory=- sessions=-1 share=100",
        "reseat-grant-1 devices=* memory=- sessions=+1 share=100",
        "reseat-grant-1 devices=* memory=- sessions=01 share=100",
        "reseat-grant-1 devices=* memory=- sessions=4097 share=100",
        "reseat-grant-1 devices=* memory=- sessions=4294967295 share=100",
        "reseat-grant-1 devices=* memory=- sessions=18446744073709551617 share=100",
        "reseat-grant-1 devices=* memory=- sessions=1x share=100",
        "reseat-grant-1 devices=* memory=- sessions=-",
        "reseat-grant-1 devices=* memory=- sessions=- share=",
        "reseat-grant-1 devices=* memory=- sessions=- share=0",
        "reseat-grant-1 devices=* memory=- sessions=- share=-",
        "reseat-grant-1 devices=* memory=- sessions=- share=0100",
        "reseat-grant-1 devices=* memory=- sessions=- share=1001",
        "reseat-grant-1 devices=* memory=- sessions=- share=4294967396",
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct grant grant = {.sessions = 77};
        cr_expect_eq(parse(rows[i], &grant), -EINVAL, "%s", rows[i]);
        cr_expect_eq(grant.sessions, 77);
    }
}

Test(grant, bytes_behind_a_nul_are_not_left_out)
{
    static const char text[] = "reseat-grant-1 devices=* memory=- sessions=- share=100\0 memory=1B";
    struct grant grant;

    cr_expect_eq(grant_parse(text, sizeof(text) - 1, &grant), -EINVAL);
    cr_expect_eq(grant_parse(text, strlen(text) + 1, &grant), -EINVAL);
    cr_expect_eq(grant_parse(text, strlen(text), &grant), 0);
}

Test(grant, the_longest_grant_fits)
{
    char list[GRANT_DEVICES_MAX * GRANT_DEVICE_MAX + 64] = "", text[GRANT_TEXT_MAX];
    char reason[GRANT_REASON_MAX];
    struct grant grant = {.memory = UINT64_MAX - 1, .sessions = GRANT_SESSIONS_MAX, .share = 1000},
                 read;

    for (int i = 0; i < GRANT_DEVICES_MAX; i++)
        sprintf(list + strlen(list), "%sd%030d", i ? "," : "", i);
    cr_assert_eq(grant_set_devices(&grant, list, reason), 0, "%s", reason);
    grant_format(&grant, text);
    cr_assert_eq(parse(text, &read), 0);
    cr_expect_eq(memcmp(&grant, &read, sizeof(grant)), 0);
    strcat(list, ",one");
    cr_expect_eq(grant_set_devices(&grant, list, reason), -EINVAL);
    cr_expect_str_eq(reason, "\"one\" is one device too many; use * for all");
    cr_expect_eq(memcmp(&grant, &read, sizeof(grant)), 0);
    sprintf(list, "d%031d", 1);
    cr_expect_eq(grant_set_devices(&grant, list, reason), -EINVAL);
}

Test(grant, a_list_of_devices_is_taken_whole_or_not)
{
    static const char *const rows[][2] = {{"gpu 0", "\"gpu 0\" is not the name"},
                                          {"gpu0,,gpu1", "\"\" is not the name"},
                                          {"gpu0,\x1b[2J", "\"?[2J\" is not the name"},
                                          {"gpu0,gpu1,gpu0", "\"gpu0\" is in the list twice"}};
    char reason[GRANT_REASON_MAX];
    struct grant grant = GRANT_ALL;

    cr_assert_eq(grant_set_devices(&grant, "accel3", reason), 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        cr_expect_eq(grant_set_devices(&grant, rows[i][0], reason), -EINVAL);
        cr_expect_eq(strncmp(reason, rows[i][1], strlen(rows[i][1])), 0, "%s", reason);
        cr_expect_eq(grant.device_count, 1);
        cr_expect_str_eq(grant.devices[0], "accel3");
    }
    cr_assert_eq(grant_set_devices(&grant, "*", reason), 0);
    cr_expect_eq(grant.device_count, 0);
}
