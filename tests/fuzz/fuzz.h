#ifndef RESEAT_TESTS_FUZZ_FUZZ_H
#define RESEAT_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/*
 * What the harnesses share. Each is one file with LLVMFuzzerTestOneInput: libFuzzer's main calls it
 * with inputs that it makes up, replay.c's with those of the corpus.
 */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** End the process, as a sanitizer would, when a property does not hold. */
#define EXPECT(expression) ((expression) ? (void)0 : fuzz_failed(#expression, __FILE__, __LINE__))
void fuzz_failed(const char *expression, const char *file, int line) __attribute__((noreturn));

/** An input that is taken from its front. Past its end everything is 0 or empty. */
struct input {
    const uint8_t *at;
    size_t left;
};

uint8_t input_byte(struct input *input);
uint16_t input_short(struct input *input);
/** @size bytes, or what is left. Borrowed. */
const uint8_t *input_bytes(struct input *input, size_t size, size_t *ret_size);
/** What is left, up to a NUL that is taken with it, as a string. To be freed. */
char *input_string(struct input *input);

/** A copy in a block of exactly that size, so that a sanitizer sees any read behind it. */
void *fuzz_copy(const void *data, size_t size);

/** A private folder of the process, in memory where the machine has such a place; removed at its
 *  end. Static. */
const char *fuzz_folder(void);
/** Write a file in it, whose path is @ret_path (of PATH_MAX). */
void fuzz_file(const char *name, const void *data, size_t size, char *ret_path);

#endif
