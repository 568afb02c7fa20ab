#include <errno.h>

#include "state/server/address.h"
#include "tests/support/leaks.h"

TestSuite(address, .fini = leaks_check, .timeout = 60);

static struct address address_of(const char *text)
{
    char reason[ADDRESS_REASON_MAX] = "none";
    struct address address = {.port = 0};

    cr_assert_eq(address_parse(text, &address, reason), 0, "%s: %s", text, reason);
    cr_expect_str_eq(reason, "none");
    return address;
}

Test(address, each_kind_is_read_and_printed)
{
    static const struct {
        const char *text, *printed, *host;
        enum address_kind kind;
        uint32_t cid, port;
    } rows[] = {
        {"unix:/run/reseat/serve", "unix:/run/reseat/serve", "/run/reseat/serve", ADDRESS_UNIX},
        {"unix:/a b:c", "unix:/a b:c", "/a b:c", ADDRESS_UNIX},
        {"tcp:gpuhost:7460", "tcp:gpuhost:7460", "gpuhost", ADDRESS_TCP, 0, 7460},
        {"tcp:GPU-1.Example.org:1", "tcp:gpu-1.example.org:1", "gpu-1.example.org", ADDRESS_TCP, 0,
         1},
        {"tcp:192.0.2.1:65535", "tcp:192.0.2.1:65535", "192.0.2.1", ADDRESS_TCP, 0, 65535},
        {"tcp:[2001:DB8:0::0:1]:7460", "tcp:[2001:db8::1]:7460", "2001:db8::1", ADDRESS_TCP, 0,
         7460},
        {"tcp:[::]:0", "tcp:[::]:0", "::", ADDRESS_TCP, 0, 0},
        {"tcp:[fe80::1%eth0]:7", "tcp:[fe80::1%eth0]:7", "fe80::1%eth0", ADDRESS_TCP, 0, 7},
        {"tcp:[::ffff:192.0.2.1]:7", "tcp:[::ffff:192.0.2.1]:7", "::ffff:192.0.2.1", ADDRESS_TCP, 0,
         7},
        {"tcp:1.2.3.4.example:7", "tcp:1.2.3.4.example:7", "1.2.3.4.example", ADDRESS_TCP, 0, 7},
        {"vsock:host:7460", "vsock:2:7460", "", ADDRESS_VSOCK, 2, 7460},
        {"vsock:local:1", "vsock:1:1", "", ADDRESS_VSOCK, 1, 1},
        {"vsock:any:4294967294", "vsock:any:4294967294", "", ADDRESS_VSOCK, UINT32_MAX, 4294967294},
        {"vsock:17:0", "vsock:17:0", "", ADDRESS_VSOCK, 17, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct address address = address_of(rows[i].text);
        char printed[ADDRESS_TEXT_MAX];
        cr_expect_eq(address.kind, rows[i].kind, "%s", rows[i].text);
        cr_expect_str_eq(address.host, rows[i].host);
        cr_expect_eq(address.cid, rows[i].cid, "%s: %u", rows[i].text, address.cid);
        cr_expect_eq(address.port, rows[i].port, "%s: %u", rows[i].text, address.port);
        address_format(&address, printed);
        cr_expect_str_eq(printed, rows[i].printed);
    }
}

static void expect_refused(const char *text, const char *why)
{
    char reason[ADDRESS_REASON_MAX] = "";
    struct address address = {.kind = ADDRESS_VSOCK, .port = 77};

    cr_expect_eq(address_parse(text, &address, reason), -EINVAL, "%s", text);
    cr_expect_not_null(strstr(reason, why), "%s: %s", text, reason);
    cr_expect_eq(address.port, 77);
}

Test(address, what_is_wrong_with_one_is_said)
{
    static const char *const rows[][2] = {
        {"", "must begin with unix:, tcp: or vsock:"},
        {"gpuhost:7460", "must begin with"},
        {"TCP:gpuhost:7460", "must begin with"},
        {"unix:", "absolute path"},
        {"unix:relative", "absolute path"},
        {"unix:/folder/", "absolute path"},
        {"unix:/a\nb", "not printable"},
        {"unix:/\xff", "not printable"},
        {"tcp:", "a port must follow"},
        {"tcp:gpuhost", "a port must follow"},
        {"tcp::7460", "neither a name nor"},
        {"tcp:gpuhost:", "up to 65535"},
        {"tcp:gpuhost:65536", "up to 65535"},
        {"tcp:gpuhost:+1", "up to 65535"},
        {"tcp:gpuhost: 1", "up to 65535"},
        {"tcp:gpuhost:99999999999999999999", "up to 65535"},
        {"tcp:2001:db8::1:7460", "in brackets"},
        {"tcp:[2001:db8::1]7460", "must follow the bracket"},
        {"tcp:[2001:db8::1", "must follow the bracket"},
        {"tcp:[gpuhost]:1", "not an IPv6 address"},
        {"tcp:[192.0.2.1]:1", "not an IPv6 address"},
        {"tcp:[fe80::1%]:1", "not an IPv6 address"},
        {"tcp:[fe80::1%interface-far-too-long]:1", "not an IPv6 address"},
        {"tcp:[fe80::1%a%b]:1", "not an IPv6 address"},
        {"tcp:-gpu:1", "neither a name nor"},
        {"tcp:gpu-:1", "neither a name nor"},
        {"tcp:gpu..host:1", "neither a name nor"},
        {"tcp:gpuhost.:1", "neither a name nor"},
        {"tcp:gpu host:1", "neither a name nor"},
        {"tcp:gpu_host:1", "neither a name nor"},
        {"vsock:7460", "a port must follow"},
        {"vsock:guest:1", "its CID must be"},
        {"vsock:0:1", "its CID must be"},
        {"vsock:4294967295:1", "its CID must be"},
        {"vsock::1", "its CID must be"},
        {"vsock:-1:1", "its CID must be"},
        {"vsock:00000000000000000002:1", "its CID must be"},
        {"vsock:2:4294967295", "up to 4294967294"},
        {"vsock:2:", "up to 4294967294"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        expect_refused(rows[i][0], rows[i][1]);
}

/* The resolver would take each for an address of its own choice. */
Test(address, no_name_is_a_number_to_the_resolver)
{
    static const char *const rows[] = {"tcp:127.1:1",      "tcp:2130706433:1", "tcp:0x7f000001:1",
                                       "tcp:0x7f.1:1",     "tcp:010.0.0.1:1",  "tcp:1.2.3.256:1",
                                       "tcp:host.0x1f:1",  "tcp:host.7:1",     "tcp:0:1",
                                       "tcp:192.0.2.01:1", "tcp:0x:1"};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        expect_refused(rows[i], "neither a name nor");
}

Test(address, lengths_are_bounded)
{
    char label[80], text[4096];
    size_t used;

    memset(label, 'a', sizeof(label));
    label[63] = '\0';
    snprintf(text, sizeof(text), "tcp:%s:1", label);
    (void)address_of(text);
    label[63] = 'a';
    label[64] = '\0';
    snprintf(text, sizeof(text), "tcp:%s:1", label);
    expect_refused(text, "neither a name nor");
    /* 253 bytes of labels, then one more. */
    label[62] = '\0';
    snprintf(text, sizeof(text), "tcp:%s.%s.%s.%s.a:1", label, label, label, label);
    (void)address_of(text);
    snprintf(text, sizeof(text), "tcp:%s.%s.%s.%s.aa:1", label, label, label, label);
    expect_refused(text, "neither a name nor");
    memset(text, 'a', sizeof(text));
    memcpy(text, "tcp:", 4);
    memcpy(text + 4000, ":1", 3);
    expect_refused(text, "host is too long");
    memcpy(text, "unix:/", 6);
    text[112] = '\0';
    used = strlen(text) - strlen("unix:");
    cr_assert_eq(used, 107);
    (void)address_of(text);
    text[112] = 'a';
    text[113] = '\0';
    expect_refused(text, "longer than 107 bytes");
}

Test(address, a_reason_is_safe_to_print)
{
    char reason[ADDRESS_REASON_MAX], text[1000];
    struct address address;

    memset(text, '\x1b', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    cr_assert_eq(address_parse(text, &address, reason), -EINVAL);
    cr_expect_null(strchr(reason, '\x1b'));
    cr_expect_lt(strlen(reason), 300);
}
