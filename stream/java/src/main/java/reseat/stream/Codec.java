package reseat.stream;

import java.nio.ByteBuffer;

/**
 * Packs an object into a record of the kernel, and unpacks an answer.
 *
 * <p>A codec is used by one thread at a time for each direction; {@code pack} and {@code unpack} may
 * run at the same time in two threads when it is used by {@link Accelerator#processor}.
 *
 * @param <T> what a record is made of
 * @param <R> what an answer becomes
 */
public interface Codec<T, R> {
    /**
     * Write one record.
     *
     * @param value the object to pack
     * @param slot  where the record goes, from its position to its limit, little-endian: exactly
     *              {@link Accelerator#inputSize} bytes of the memory that the device is written from.
     *              Write with relative puts up to the limit: fewer bytes are an error, and no record
     *              is sent. Do not keep the buffer.
     */
    void pack(T value, ByteBuffer slot);

    /**
     * Read one answer.
     *
     * @param answer the answer, from its position to its limit, little-endian: exactly
     *               {@link Accelerator#outputSize} bytes, read-only. Read with relative gets; the
     *               bytes are others after the call, so copy what you keep.
     * @return the object, which is what the caller of {@code map} gets
     */
    R unpack(ByteBuffer answer);

    /**
     * Records and answers as byte arrays.
     *
     * @return a codec without state, which any number of threads may use
     */
    static Codec<byte[], byte[]> bytes() {
        return new Codec<>() {
            @Override
            public void pack(byte[] value, ByteBuffer slot) {
                if (value.length != slot.remaining())
                    throw new IllegalArgumentException("a record of " + value.length
                            + " bytes; this kernel's have " + slot.remaining());
                slot.put(value);
            }

            @Override
            public byte[] unpack(ByteBuffer answer) {
                byte[] bytes = new byte[answer.remaining()];
                answer.get(bytes);
                return bytes;
            }
        };
    }
}
