#include <errno.h>
#include <inttypes.h>

#include "state/base/bytes/size.h"
#include "tests/support/leaks.h"

TestSuite(size, .fini = leaks_check, .timeout = 60);

Test(size, a_whole_number_and_a_unit_is_a_size)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {
        {"0", 0},
        {"000", 0},
        {"0B", 0},
        {"0TiB", 0},
        {"1B", 1},
        {"1KiB", 1024},
        {"512MiB", 536870912},
        {"1GiB", 1073741824},
        {"007GiB", 7516192768},
        {"3TiB", 3298534883328},
        {"16777215TiB", 18446742974197923840u},
        {"18446744073709551614B", 18446744073709551614u},
        {"18014398509481983KiB", 18446744073709550592u},
    };

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        uint64_t bytes = 42;
        char reason[128] = "untouched";
        cr_expect_eq(size_parse(sizes[i].text, &bytes, reason, sizeof(reason)), 0, "%s: %s",
                     sizes[i].text, reason);
        cr_expect_eq(bytes, sizes[i].bytes, "%s: %" PRIu64, sizes[i].text, bytes);
        cr_expect_str_eq(reason, "untouched");
    }
}

static void expect_refused(const char *text, int error, const char *why)
{
    uint64_t bytes = 42;
    char reason[128] = "";
    int result = size_parse(text, &bytes, reason, sizeof(reason));

    cr_expect_eq(result, error, "\"%s\": %d", text, result);
    cr_expect_eq(bytes, 42, "\"%s\"", text);
    cr_expect(strstr(reason, why), "\"%s\": %s", text, reason);
    cr_expect_not(strchr(reason, '\n'));
}

Test(size, junk_is_refused)
{
    static const char *const junk[] = {
        "",      " ",      "B",      "GiB",    "1",    "1024",  "-1GiB",  "+1GiB", " 1GiB", "1 GiB",
        "1GiB ", "1.5GiB", "1,5GiB", "1e3B",   "0x1B", "1GB",   "1G",     "1gib",  "1GIB",  "1GiBB",
        "1PiB",  "1GiB,",  "1GiB\n", "1\xe2",  "GiB1", "1GiB1", "00x",    "1Gi",   "1b",    "1MiB2",
        "1K",    "MiB 1",  "1 B",    "1\tKiB", "0 B",  "0x0",   "one GiB"};

    for (size_t i = 0; i < ARRAY_SIZE(junk); i++)
        expect_refused(junk[i], -EINVAL, "is not a size");
    /* Text of any length leaves a line that fits. */
    char *text = malloc(100001);
    memset(text, 'x', 100000);
    text[100000] = '\0';
    expect_refused(text, -EINVAL, "is not a s");
    memset(text, '9', 99997);
    strcpy(text + 99997, "KiB");
    expect_refused(text, -ERANGE, "is too large");
    memset(text, '0', 99996);
    strcpy(text + 99996, "7KiB");
    uint64_t bytes = 0;
    char reason[128];
    cr_expect_eq(size_parse(text, &bytes, reason, sizeof(reason)), 0);
    cr_expect_eq(bytes, 7168);
    free(text);
}

Test(size, what_64_bits_do_not_hold_is_refused)
{
    static const char *const large[] = {"16777216TiB", "17179869184GiB", "17592186044416MiB",
                                        "18014398509481984KiB", "18446744073709551616B",
                                        "99999999999999999999999999B",
                                        /* The last number stands for no limit. */
                                        "18446744073709551615B",
                                        /* Multiplied by their unit these are small again. */
                                        "16777217TiB", "36893488147419103232GiB"};

    for (size_t i = 0; i < ARRAY_SIZE(large); i++)
        expect_refused(large[i], -ERANGE, "is too large");
}

Test(size, what_is_written_is_read_again)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } known[] = {
        {0, "0B"},
        {1, "1B"},
        {1023, "1023B"},
        {1024, "1KiB"},
        {1025, "1025B"},
        {1536, "1536B"},
        {1048576, "1MiB"},
        {1610612736, "1536MiB"},
        {8589934592, "8GiB"},
        {1ull << 50, "1024TiB"},
        {18446744073709551614u, "18446744073709551614B"},
    };
    char text[SIZE_TEXT_MAX], reason[128];

    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        size_format(known[i].bytes, text);
        cr_expect_str_eq(text, known[i].text);
    }
    srandom(1);
    for (int i = 0; i < 100000; i++) {
        uint64_t bytes = ((uint64_t)random() << 33 ^ (uint64_t)random() << 11 ^ (uint64_t)random())
                             << (random() % 64) >>
                         (random() % 64);
        uint64_t again = ~bytes;
        if (bytes == UINT64_MAX)
            continue;
        size_format(bytes, text);
        cr_assert_eq(size_parse(text, &again, reason, sizeof(reason)), 0, "%s", reason);
        cr_assert_eq(again, bytes, "%s", text);
    }
}

Test(size, numbers_are_digits_alone)
{
    static const char *const wrong[] = {NULL, "",   " 1",  "+1", "-1",
                                        "1 ", "1s", "0x1", "11", "18446744073709551616"};
    uint64_t number = 7;

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        cr_expect(!number_parse(wrong[i], 10, &number), "%s", wrong[i] ? wrong[i] : "nothing");
    cr_expect_eq(number, 7);
    cr_expect(number_parse("010", 10, &number) && number == 10);
    cr_expect(number_parse("0", 0, &number) && number == 0);
    cr_expect(number_parse("18446744073709551615", UINT64_MAX, &number) && number == UINT64_MAX);
    cr_expect(!number_parse("18446744073709551616", UINT64_MAX, &number));
}
