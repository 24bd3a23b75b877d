package com.acme.mqtt.store;

import com.fasterxml.jackson.annotation.JsonInclude;

/** One publication; the payload is Base64 in JSON. */
@JsonInclude(JsonInclude.Include.NON_NULL)
public record DeviceMsg(String topic, int qos, byte[] payload, Long expiry, Integer packetId, Long sequence) {}
