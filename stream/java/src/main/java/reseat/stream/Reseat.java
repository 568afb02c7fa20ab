package reseat.stream;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/**
 * Opens streams.
 *
 * <pre>{@code
 * try (Accelerator aes = Reseat.open("aes", key)) {
 *     byte[] encrypted = aes.run(plain); // whole records of 16 bytes
 * }
 * }</pre>
 *
 * <p>The service is found at {@code $RESEAT_STREAM} ({@code unix:PATH} or {@code tcp:HOST:PORT}), else
 * at {@code reseat/stream.sock} in the user's runtime folder, where {@code reseat stream serve} listens.
 */
public final class Reseat {
    private Reseat() {
    }

    /**
     * Open a stream of a kernel that the service knows by name, on a device that it chooses.
     *
     * <p>Blocks until the kernel is built. Thread-safe.
     *
     * @param kernel    its name, as {@code reseat stream list} shows
     * @param constants the kernel's constants in the order of its description; copied
     * @return the stream, which the caller closes
     * @throws ReseatException NO_SERVICE, REFUSED or INTERRUPTED
     */
    public static Accelerator open(String kernel, byte[]... constants) {
        Builder builder = kernel(kernel);
        for (byte[] constant : constants)
            builder.constant("", constant);
        return builder.open();
    }

    /**
     * Begin to describe a stream; {@link Builder#open} opens it.
     *
     * @param name the kernel's name
     * @return a builder for one thread
     */
    public static Builder kernel(String name) {
        return new Builder(name);
    }

    /** What a stream is opened with. For one thread; {@link #open} may be called again. */
    public static final class Builder {
        final String kernel;
        String description = "";
        String source = "";
        String device = "";
        String address;
        Duration reconnect = Duration.ofSeconds(10);
        Duration timeout;
        boolean shared = true;
        private final List<String> names = new ArrayList<>();
        private final List<byte[]> constants = new ArrayList<>();

        private Builder(String kernel) {
            this.kernel = Objects.requireNonNull(kernel);
        }

        /**
         * Give the kernel a constant.
         *
         * @param name  its name in the description; "" for the next one in order
         * @param bytes its contents, copied
         * @return this
         */
        public Builder constant(String name, byte[] bytes) {
            names.add(Objects.requireNonNull(name));
            constants.add(bytes.clone());
            return this;
        }

        /**
         * Use a kernel of your own, which the service need not know.
         *
         * @param descriptionText the text of its {@code .stream} file
         * @param sourceText      OpenCL C, the text of its {@code .cl} file
         * @return this
         */
        public Builder source(String descriptionText, String sourceText) {
            description = Objects.requireNonNull(descriptionText);
            source = Objects.requireNonNull(sourceText);
            return this;
        }

        /**
         * Begin on a device.
         *
         * @param name as {@code reseat devices} shows; "", the default, lets the service choose
         * @return this
         */
        public Builder device(String name) {
            device = Objects.requireNonNull(name);
            return this;
        }

        /**
         * Use the service at an address, whatever {@code $RESEAT_STREAM} says.
         *
         * @param where {@code unix:PATH} or {@code tcp:HOST:PORT}
         * @return this
         */
        public Builder address(String where) {
            address = Objects.requireNonNull(where);
            return this;
        }

        /**
         * How long a call looks for a service after the one that it used has ended.
         *
         * @param limit 10 seconds by default; zero: do not connect again
         * @return this
         */
        public Builder reconnect(Duration limit) {
            reconnect = Objects.requireNonNull(limit);
            return this;
        }

        /**
         * How long a call may wait without progress: for the stream to open, for room, or for the
         * next answers.
         *
         * @param limit without it calls wait for as long as it takes
         * @return this
         */
        public Builder timeout(Duration limit) {
            timeout = Objects.requireNonNull(limit);
            return this;
        }

        /**
         * Use memory shared with the service where it is on this machine.
         *
         * @param wanted true by default; false: records go through the socket
         * @return this
         */
        public Builder sharedMemory(boolean wanted) {
            shared = wanted;
            return this;
        }

        /**
         * Open the stream.
         *
         * <p>Blocks until the kernel is built.
         *
         * @return the stream, which the caller closes
         * @throws ReseatException NO_SERVICE, REFUSED, TIMED_OUT or INTERRUPTED
         */
        public Accelerator open() {
            return new Accelerator(new RecordStream(new Dialer(this), reconnect, timeout));
        }

        /** The body of the OPEN frame. */
        byte[] request(boolean wantsArea) {
            List<byte[]> strings = new ArrayList<>();
            for (String text : new String[] {kernel, description, source, device})
                strings.add(text.getBytes(StandardCharsets.UTF_8));
            for (int i = 0; i < names.size(); i++) {
                strings.add(names.get(i).getBytes(StandardCharsets.UTF_8));
                strings.add(constants.get(i));
            }
            long size = 12;
            for (byte[] string : strings)
                size += 4L + string.length;
            if (size > Wire.BODY_MAX)
                throw new ReseatException(ReseatException.Reason.REFUSED, "the kernel's source and "
                        + "constants have " + size + " bytes; at most " + Wire.BODY_MAX + " can be sent");
            ByteBuffer body = ByteBuffer.allocate((int) size).order(ByteOrder.LITTLE_ENDIAN);
            body.putInt(Wire.VERSION).putInt(wantsArea ? Wire.WANTS_AREA : 0);
            for (int i = 0; i < strings.size(); i++) {
                if (i == 4)
                    body.putInt(names.size());
                body.putInt(strings.get(i).length).put(strings.get(i));
            }
            if (names.isEmpty())
                body.putInt(0);
            return body.array();
        }
    }
}
