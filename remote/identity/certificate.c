#include "remote/identity/certificate.h"

#include <errno.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "remote/identity/credentials.h"
#include "state/base/threads/fork.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static OSSL_LIB_CTX *crypto;

/* The context is never freed: threads may use it until the process ends. */
static void crypto_begin(void)
{
    if (OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL))
        crypto = OSSL_LIB_CTX_new();
}

/* A thread of the parent may have held a lock of the context, which nobody releases in the child.
 * The child therefore makes a new context. */
static void crypto_in_child(void)
{
    once = (pthread_once_t)PTHREAD_ONCE_INIT;
    crypto = NULL;
}

FORK_PART = {.rank = FORK_TABLE, .in_child = crypto_in_child};

OSSL_LIB_CTX *crypto_context(void)
{
    pthread_once(&once, crypto_begin);
    return crypto;
}

void crypto_problem(char ret_problem[CRYPTO_PROBLEM_MAX])
{
    unsigned long error = ERR_get_error();
    const char *reason = ERR_reason_error_string(error);

    if (reason)
        snprintf(ret_problem, CRYPTO_PROBLEM_MAX, "%s", reason);
    else
        snprintf(ret_problem, CRYPTO_PROBLEM_MAX, "OpenSSL's error %lx", error);
    ERR_clear_error();
}

int crypto_no_password(char *buffer, int size, int writing, void *data)
{
    (void)buffer, (void)size, (void)writing, (void)data;
    return -1;
}

#define SERIAL_BYTES 16
#define VERSION_3    2

bool certificate_name_is_valid(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-";
    size_t length = strlen(name);

    return length > 0 && length < CERTIFICATE_NAME_MAX && name[0] != '.' && name[0] != '-' &&
           strspn(name, allowed) == length;
}

EVP_PKEY *certificate_new_key(void)
{
    return EVP_PKEY_Q_keygen(crypto_context(), NULL, "ED25519");
}

static bool certificate_set_serial(X509 *certificate)
{
    unsigned char bytes[SERIAL_BYTES];
    BIGNUM *number = NULL;

    if (RAND_bytes_ex(crypto_context(), bytes, sizeof(bytes), 0) != 1)
        return false;
    /* Clear the top bit, so that the number is positive, and set the next one, so that all serial
     * numbers have the same length. */
    bytes[0] = (unsigned char)((bytes[0] & 0x7f) | 0x40);
    number = BN_bin2bn(bytes, sizeof(bytes), NULL);
    bool done = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
    BN_free(number);
    return done;
}

static bool certificate_set_names(X509 *certificate, const char *name, const X509 *authority)
{
    X509_NAME *subject = X509_get_subject_name(certificate);

    return X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1,
                                      -1, 0) &&
           X509_set_issuer_name(certificate,
                                authority ? X509_get_subject_name(authority) : subject);
}

static bool certificate_set_times(X509 *certificate, const struct certificate_wish *wish,
                                  const X509 *authority)
{
    return ASN1_TIME_set(X509_getm_notBefore(certificate), wish->from) &&
           ASN1_TIME_set(X509_getm_notAfter(certificate), wish->until) &&
           (!authority ||
            ASN1_TIME_compare(X509_get0_notAfter(certificate), X509_get0_notAfter(authority)) <=
                0 ||
            X509_set1_notAfter(certificate, X509_get0_notAfter(authority)));
}

static bool certificate_add(X509 *certificate, X509V3_CTX *context, int what, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_nconf_nid(NULL, context, what, value);
    bool done = extension && X509_add_ext(certificate, extension, -1);

    X509_EXTENSION_free(extension);
    return done;
}

static bool certificate_add_usage(X509 *certificate, X509V3_CTX *context,
                                  const struct certificate_wish *wish)
{
    char name[CERTIFICATE_NAME_MAX + 256];

    if (wish->kind == CERTIFICATE_AUTHORITY)
        return certificate_add(certificate, context, NID_basic_constraints,
                               "critical,CA:TRUE,pathlen:0") &&
               certificate_add(certificate, context, NID_key_usage, "critical,keyCertSign,cRLSign");
    if (!certificate_add(certificate, context, NID_basic_constraints, "critical,CA:FALSE") ||
        !certificate_add(certificate, context, NID_key_usage, "critical,digitalSignature") ||
        !certificate_add(certificate, context, NID_authority_key_identifier, "keyid:always"))
        return false;
    if (wish->kind == CERTIFICATE_CLIENT)
        return certificate_add(certificate, context, NID_ext_key_usage, "clientAuth");
    snprintf(name, sizeof(name), "DNS:%s", wish->name);
    return certificate_add(certificate, context, NID_ext_key_usage, "serverAuth") &&
           certificate_add(certificate, context, NID_subject_alt_name, name);
}

static bool certificate_add_grant(X509 *certificate, const struct grant *grant)
{
    char text[GRANT_TEXT_MAX];
    ASN1_OBJECT *number = OBJ_txt2obj(CERTIFICATE_GRANT_OID, 1);
    ASN1_UTF8STRING *string = ASN1_UTF8STRING_new();
    ASN1_OCTET_STRING *octets = ASN1_OCTET_STRING_new();
    X509_EXTENSION *extension = NULL;
    unsigned char *der = NULL;
    bool done = false;

    grant_format(grant, text);
    if (number && string && octets && ASN1_STRING_set(string, text, -1)) {
        int length = i2d_ASN1_UTF8STRING(string, &der);
        if (length > 0 && ASN1_OCTET_STRING_set(octets, der, length))
            extension = X509_EXTENSION_create_by_OBJ(NULL, number, 0, octets);
        done = extension && X509_add_ext(certificate, extension, -1);
    }
    OPENSSL_free(der);
    X509_EXTENSION_free(extension);
    ASN1_OCTET_STRING_free(octets);
    ASN1_UTF8STRING_free(string);
    ASN1_OBJECT_free(number);
    return done;
}

static bool certificate_fill(X509 *certificate, const struct certificate_wish *wish, EVP_PKEY *key,
                             X509 *authority)
{
    X509V3_CTX context;

    if (!X509_set_version(certificate, VERSION_3) || !certificate_set_serial(certificate) ||
        !certificate_set_names(certificate, wish->name, authority) ||
        !certificate_set_times(certificate, wish, authority) || !X509_set_pubkey(certificate, key))
        return false;
    X509V3_set_ctx(&context, authority ? authority : certificate, certificate, NULL, NULL, 0);
    return certificate_add(certificate, &context, NID_subject_key_identifier, "hash") &&
           certificate_add_usage(certificate, &context, wish) &&
           (!wish->grant || certificate_add_grant(certificate, wish->grant));
}

X509 *certificate_make(const struct certificate_wish *wish, EVP_PKEY *key, X509 *authority,
                       EVP_PKEY *authority_key)
{
    X509 *certificate = X509_new_ex(crypto_context(), NULL);

    /* The digest is NULL because Ed25519 includes its own. */
    if (certificate && certificate_fill(certificate, wish, key, authority) &&
        X509_sign(certificate, authority ? authority_key : key, NULL))
        return certificate;
    X509_free(certificate);
    return NULL;
}

int certificate_name(const X509 *certificate, char ret_name[CERTIFICATE_NAME_MAX])
{
    X509_NAME *subject = X509_get_subject_name(certificate);
    int first = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    char name[CERTIFICATE_NAME_MAX];

    if (first < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, first) >= 0)
        return -EINVAL;
    const ASN1_STRING *string = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, first));
    int length = ASN1_STRING_length(string);
    if (length <= 0 || length >= CERTIFICATE_NAME_MAX)
        return -EINVAL;
    memcpy(name, ASN1_STRING_get0_data(string), (size_t)length);
    name[length] = '\0';
    if (strlen(name) != (size_t)length || !certificate_name_is_valid(name))
        return -EINVAL;
    strcpy(ret_name, name);
    return 0;
}

static int certificate_read_grant(const ASN1_OCTET_STRING *octets, struct grant *ret_grant)
{
    const unsigned char *at = ASN1_STRING_get0_data(octets);
    const unsigned char *end = at + ASN1_STRING_length(octets);
    ASN1_UTF8STRING *string = d2i_ASN1_UTF8STRING(NULL, &at, end - at);
    int error = -EINVAL;

    if (string && at == end)
        error = grant_parse((const char *)ASN1_STRING_get0_data(string),
                            (size_t)ASN1_STRING_length(string), ret_grant);
    ASN1_UTF8STRING_free(string);
    ERR_clear_error();
    return error;
}

int certificate_grant(const X509 *certificate, struct grant *ret_grant)
{
    ASN1_OBJECT *number = OBJ_txt2obj(CERTIFICATE_GRANT_OID, 1);

    if (!number)
        return -EINVAL;
    int first = X509_get_ext_by_OBJ(certificate, number, -1);
    int next = first < 0 ? -1 : X509_get_ext_by_OBJ(certificate, number, first);
    ASN1_OBJECT_free(number);
    if (first < 0)
        return -ENOENT;
    if (next >= 0)
        return -EINVAL;
    return certificate_read_grant(X509_EXTENSION_get_data(X509_get_ext(certificate, first)),
                                  ret_grant);
}

int certificate_serial(const X509 *certificate, char ret_serial[CERTIFICATE_SERIAL_MAX])
{
    const ASN1_INTEGER *serial = X509_get0_serialNumber(certificate);
    int length = ASN1_STRING_length(serial);

    if (length <= 0 || length > (CERTIFICATE_SERIAL_MAX - 1) / 2)
        return -EINVAL;
    for (int i = 0; i < length; i++)
        snprintf(ret_serial + (ptrdiff_t)2 * i, 3, "%02x", ASN1_STRING_get0_data(serial)[i]);
    return 0;
}

X509 *certificate_read(BIO *from)
{
    X509 *certificate = X509_new_ex(crypto_context(), NULL);

    /* Reading into an existing certificate keeps its library context. On failure, free whatever
     * PEM_read_bio_X509() left in `certificate`. */
    if (certificate && !PEM_read_bio_X509(from, &certificate, crypto_no_password, NULL)) {
        X509_free(certificate);
        certificate = NULL;
    }
    return certificate;
}

EVP_PKEY *certificate_read_key(BIO *from)
{
    return PEM_read_bio_PrivateKey_ex(from, NULL, crypto_no_password, NULL, crypto_context(), NULL);
}

bool certificate_write(BIO *to, X509 *certificate)
{
    return PEM_write_bio_X509(to, certificate);
}

bool certificate_write_key(BIO *to, EVP_PKEY *key)
{
    return PEM_write_bio_PKCS8PrivateKey(to, key, NULL, NULL, 0, NULL, NULL);
}

/* Bytes of a list of revoked certificates: enough for more than 10,000. */
#define LIST_MAX (1u << 20)

/** Length of the serial number at the beginning of a line. 0 if the line is malformed. */
static size_t revoked_line_serial(const char *line, size_t length)
{
    size_t serial = strspn(line, "0123456789abcdef");

    if (!serial || serial >= CERTIFICATE_SERIAL_MAX || serial + 1 >= length || line[serial] != ' ')
        return 0;
    return serial;
}

int revoked_find(const char *bytes, size_t size, const char *serial)
{
    size_t wanted = strlen(serial);
    int result = 0;

    for (size_t at = 0; at < size;) {
        const char *line = bytes + at, *end = memchr(line, '\n', size - at);
        size_t found = end ? revoked_line_serial(line, (size_t)(end - line)) : 0;
        /* Check all lines, also those after a match: a truncated or wrongly edited list is refused
         * as a whole. */
        if (!found)
            return -EINVAL;
        if (found == wanted && memcmp(line, serial, wanted) == 0)
            result = -EKEYREVOKED;
        at += (size_t)(end - line) + 1;
    }
    return result;
}

int revoked_check(const char *path, const char *serial, char ret_problem[FOLDER_PROBLEM_MAX])
{
    char *bytes;
    size_t size;
    int error = private_file_read(path, LIST_MAX, &bytes, &size, ret_problem);

    if (error)
        return error;
    error = revoked_find(bytes, size, serial);
    if (error == -EINVAL)
        error = folder_refuse(ret_problem, error, path, "is damaged");
    private_file_free(bytes, size);
    return error;
}
