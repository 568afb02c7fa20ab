#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote/identity/certificate.h"
#include "remote/identity/credentials.h"
#include "remote/identity/grant.h"
#include "state/server/address.h"
#include "tests/fuzz/fuzz.h"

/*
 * What a link reads of others: an address, as anybody may write it; a grant; a list of revoked
 * certificates; credentials; and a client's certificate, whose signature is not looked at here.
 * The first byte says which.
 */

static bool is_line(const char *text, size_t size)
{
    size_t length = strnlen(text, size);

    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    return length > 0 && length < size;
}

/** What is taken is printed as something that is taken, and means the same. */
static void try_address(const char *text)
{
    char reason[ADDRESS_REASON_MAX] = "", printed[ADDRESS_TEXT_MAX], again[ADDRESS_TEXT_MAX];
    struct address address, address2;

    if (address_parse(text, &address, reason)) {
        EXPECT(is_line(reason, sizeof(reason)));
        return;
    }
    EXPECT(!reason[0] && strlen(address.host) < sizeof(address.host));
    EXPECT(address.kind != ADDRESS_TCP || (address.port <= 65535 && !strchr(address.host, '/')));
    address_format(&address, printed);
    EXPECT(address_parse(printed, &address2, reason) == 0);
    EXPECT(address.kind == address2.kind && address.port == address2.port &&
           address.cid == address2.cid && strcmp(address.host, address2.host) == 0);
    address_format(&address2, again);
    EXPECT(strcmp(printed, again) == 0);
}

static void check_grant(const struct grant *grant)
{
    EXPECT(grant->device_count <= GRANT_DEVICES_MAX && grant->memory > 0 && grant->sessions > 0);
    EXPECT(grant->sessions <= GRANT_SESSIONS_MAX || grant->sessions == GRANT_UNLIMITED_SESSIONS);
    for (size_t i = 0; i < grant->device_count; i++)
        EXPECT(grant_has_device(grant, grant->devices[i]));
    EXPECT(grant_has_device(grant, "-") == (grant->device_count == 0));
}

static void try_grant(const char *text, size_t size)
{
    char again[GRANT_TEXT_MAX];
    struct grant grant;

    if (grant_parse(text, size, &grant))
        return;
    check_grant(&grant);
    grant_format(&grant, again);
    EXPECT(strlen(again) == size && memcmp(again, text, size) == 0);
}

static void try_devices(const char *list)
{
    char reason[GRANT_REASON_MAX] = "", text[GRANT_TEXT_MAX];
    struct grant grant = GRANT_ALL, read;

    if (grant_set_devices(&grant, list, reason)) {
        EXPECT(is_line(reason, sizeof(reason)));
        return;
    }
    check_grant(&grant);
    grant_format(&grant, text);
    EXPECT(grant_parse(text, strlen(text), &read) == 0);
    EXPECT(memcmp(&grant, &read, sizeof(grant)) == 0);
}

static void try_revoked(const char *bytes, size_t size)
{
    int result = revoked_find(bytes, size, "4a00");

    EXPECT(result == 0 || result == -EKEYREVOKED || result == -EINVAL);
    EXPECT(result != -EKEYREVOKED || memmem(bytes, size, "4a00 ", 5));
}

static void try_credentials(const char *bytes, size_t size)
{
    char problem[FOLDER_PROBLEM_MAX] = "";
    struct credentials credentials;
    int error = credentials_parse("file", bytes, size, &credentials, problem);

    EXPECT(error == 0 || (error == -EINVAL && is_line(problem, sizeof(problem))));
    if (!error)
        credentials_finish(&credentials);
}

static void try_certificate(const uint8_t *bytes, size_t size)
{
    char name[CERTIFICATE_NAME_MAX], serial[CERTIFICATE_SERIAL_MAX];
    X509 *certificate = d2i_X509(NULL, &bytes, (long)size);
    struct grant grant;

    if (!certificate)
        return;
    if (certificate_name(certificate, name) == 0)
        EXPECT(certificate_name_is_valid(name));
    if (certificate_serial(certificate, serial) == 0)
        EXPECT(strspn(serial, "0123456789abcdef") == strlen(serial) && serial[0]);
    if (certificate_grant(certificate, &grant) == 0)
        check_grant(&grant);
    X509_free(certificate);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    unsigned which = input_byte(&input) % 6;
    size_t left = input.left;
    /* Bytes in a block of their size, and as a string. */
    char *bytes = fuzz_copy(input.at, left), *text = input_string(&input);

    if (which == 0)
        try_address(text);
    else if (which == 1)
        try_grant(bytes, left);
    else if (which == 2)
        try_devices(text);
    else if (which == 3)
        try_revoked(bytes, left);
    else if (which == 4)
        try_credentials(text, strlen(text));
    else
        try_certificate((const uint8_t *)bytes, left);
    free(bytes);
    free(text);
    return 0;
}
